#include "engine/parameter_store.h"

namespace memfloor {

std::int64_t ParameterStore::parameters() const {
  std::int64_t sum = 0;
  for (const ParameterSpec& spec : specs_) sum += spec.elements();
  return sum;
}

float initial_value(const ParameterSpec& spec, ParameterStore::Handle handle, std::int64_t index,
                    std::uint32_t seed) {
  if (index / (spec.taps * spec.inputs) == spec.zero_row) return 0;
  if (spec.init.kind == Initializer::Kind::constant) return spec.init.scale;
  const Philox philox(seed, Purpose::initial_weights);
  const auto words =
      philox({static_cast<std::uint32_t>(handle), static_cast<std::uint32_t>(index), 0, 0});
  if (spec.init.kind == Initializer::Kind::normal)
    return spec.init.scale * normal_pair(words[0], words[1])[0];
  return spec.init.scale * (2 * uniform(words[0]) - 1);
}

}  // namespace memfloor

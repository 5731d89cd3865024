#include "backends/cpu/adam.h"

#include <cmath>
#include <limits>

#include "backends/cpu/update_chunk.h"

namespace memfloor::cpu {
namespace {

/// How a state is stored: times `scale`, at most `largest`.
struct StateFormat {
  float scale = 1, largest = std::numeric_limits<float>::infinity();

  float stored(float value) const {
    return std::min(std::max(value * scale, -largest), largest);  // NaN stays
  }
};

StateFormat state_format(Dtype dtype) {
  constexpr float kLargestHalf = 65504;
  return dtype == Dtype::f16 ? StateFormat{kAdamStateScale, kLargestHalf} : StateFormat{};
}

/// kRoots: the second state is sqrt(v).
template <bool kRoots>
void adam_elements(const AdamRule& rule, float decay, float rate, const StateFormat& format,
                   std::int64_t count, const float* gradient, float* weights, float* means,
                   float* seconds) {
  const float unscale = 1 / format.scale;
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = gradient[i], second = seconds[i] * unscale;
    const float m = rule.beta1 * (means[i] * unscale) + (1 - rule.beta1) * g;
    const float v = rule.beta2 * (kRoots ? second * second : second) + (1 - rule.beta2) * g * g;
    const float root = std::sqrt(v);
    weights[i] -= decay * weights[i] + rate * m / (root + rule.epsilon);
    means[i] = format.stored(m);
    seconds[i] = format.stored(kRoots ? root : v);
  }
}

}  // namespace

void adam_piece(const AdamRule& rule, const UpdateStep& step, const UpdateArrays& arrays,
                std::int64_t begin, std::int64_t count) {
  const auto t = static_cast<double>(step.number + 1);
  const auto rate =
      static_cast<float>(static_cast<double>(step.learning_rate) *
                         std::sqrt(1 - std::pow(rule.beta2, t)) / (1 - std::pow(rule.beta1, t)));
  const float decay = step.learning_rate * rule.weight_decay;
  const StateFormat format = state_format(arrays.state_dtype);
  const auto update = arrays.state_dtype == Dtype::f32 ? adam_elements<false> : adam_elements<true>;
  float weight_buffer[UpdateChunk::kMost], gradient_buffer[UpdateChunk::kMost],
      mean_buffer[UpdateChunk::kMost], second_buffer[UpdateChunk::kMost];
  for_update_chunks(step, arrays, begin, count, [&](const UpdateChunk& chunk) {
    float* weights = chunk.weights(weight_buffer);
    const float* gradient = chunk.gradient(gradient_buffer);
    float* means = chunk.state(0, mean_buffer);
    float* seconds = chunk.state(1, second_buffer);
    update(rule, decay, rate, format, chunk.count(), gradient, weights, means, seconds);
    chunk.put_weights(weights);
    chunk.put_state(0, means);
    chunk.put_state(1, seconds);
  });
}

}  // namespace memfloor::cpu

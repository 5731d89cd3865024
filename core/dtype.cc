#include "core/dtype.h"

#include <algorithm>

namespace memfloor {

const char* name_of(Dtype dtype) {
  return with_dtype(dtype, [](auto element) {
    constexpr const char* kNames[] = {"f32", "f16", "bf16"};
    return kNames[static_cast<int>(dtype_of<decltype(element)>)];
  });
}

void to_f32(const void* from, Dtype dtype, float* to, std::int64_t elements) {
  with_dtype(dtype, [&](auto element) {
    const auto* values = static_cast<const decltype(element)*>(from);
    std::transform(values, values + elements, to, [](auto x) { return static_cast<float>(x); });
  });
}

void from_f32(const float* from, Dtype dtype, void* to, std::int64_t elements) {
  with_dtype(dtype, [&](auto element) {
    using T = decltype(element);
    std::transform(from, from + elements, static_cast<T*>(to), [](float x) { return T(x); });
  });
}

}  // namespace memfloor

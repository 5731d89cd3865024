// What the optimizers' updates share: stretches of the arrays, short enough to stay in the first
// cache while they are widened to FP32, updated and rounded to their formats.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cpu/convert.h"
#include "backends/cpu/stochastic_rounding.h"
#include "backends/tensor_ops.h"

namespace memfloor::cpu {

class UpdateChunk {
 public:
  static constexpr std::int64_t kMost = 1024;  // elements: a buffer of 4 KiB
  static_assert(kMost % kRoundingBlock == 0);

  UpdateChunk(const UpdateStep& step, const UpdateArrays& arrays, std::int64_t first,
              std::int64_t count)
      : step_(step), arrays_(arrays), first_(first), count_(count) {}

  std::int64_t count() const { return count_; }

  // The values that move: where they lie if they are FP32, else widened into `buffer`.
  float* weights(float* buffer) const {
    return arrays_.master ? arrays_.master + first_
                          : values(arrays_.weights, arrays_.weight_dtype, buffer);
  }
  float* state(int index, float* buffer) const {
    return values(arrays_.state[index], arrays_.state_dtype, buffer);
  }
  // Without its scale.
  const float* gradient(float* buffer) const {
    const Dtype dtype = arrays_.gradient_dtype;
    if (dtype == Dtype::f32 && step_.gradient_scale == 1)
      return static_cast<const float*>(arrays_.gradient) + first_;
    widen(of(arrays_.gradient, dtype), dtype, buffer, count_);
    const float inverse = 1 / step_.gradient_scale;
    if (step_.gradient_scale != 1)
      for (std::int64_t i = 0; i < count_; ++i) buffer[i] *= inverse;
    return buffer;
  }

  // Rounds new values, which weights() or state() gave, to where they are stored.
  void put_weights(const float* values) const {
    put(values, arrays_.weight_dtype, arrays_.weights, 0);
  }
  void put_state(int index, const float* values) const {
    put(values, arrays_.state_dtype, arrays_.state[index], 1 + static_cast<std::uint32_t>(index));
  }

 private:
  template <class Void>
  Void* of(Void* array, Dtype dtype) const {
    using Byte = std::conditional_t<std::is_const_v<Void>, const char, char>;
    return static_cast<Byte*>(array) + first_ * static_cast<std::int64_t>(size_of(dtype));
  }
  float* values(void* array, Dtype dtype, float* buffer) const {
    if (dtype == Dtype::f32) return static_cast<float*>(array) + first_;
    widen(of(array, dtype), dtype, buffer, count_);
    return buffer;
  }
  // `draw` says which array it is: each rounds by numbers of its own.
  void put(const float* values, Dtype dtype, void* array, std::uint32_t draw) const {
    if (dtype == Dtype::f32) return;  // they lie there
    if (arrays_.rounding == Rounding::nearest)
      return narrow(values, dtype, of(array, dtype), count_);
    round_stochastically(
        {step_.seed, static_cast<std::uint32_t>(step_.number), draw, arrays_.stream}, values, dtype,
        of(array, dtype), first_, count_);
  }

  const UpdateStep& step_;
  const UpdateArrays& arrays_;
  std::int64_t first_, count_;
};

/// Calls body(chunk) for the chunks of elements [begin, begin + count).
template <class Body>
void for_update_chunks(const UpdateStep& step, const UpdateArrays& arrays, std::int64_t begin,
                       std::int64_t count, Body&& body) {
  for (std::int64_t done = 0; done < count; done += UpdateChunk::kMost)
    body(UpdateChunk(step, arrays, begin + done, std::min(UpdateChunk::kMost, count - done)));
}

}  // namespace memfloor::cpu

#include "backends/cpu/sgd.h"

#include <algorithm>

#include "backends/cpu/convert.h"
#include "backends/cpu/stochastic_rounding.h"

namespace memfloor::cpu {
namespace {

// Elements that are widened at a time: three buffers of 4 KiB, which stay in the first cache.
constexpr std::int64_t kChunk = 1024;
static_assert(kChunk % kRoundingBlock == 0);

// Which array draws: weights, or state 0, 1, ...
enum Draw : std::uint32_t { kWeights, kState };

struct Chunk {
  std::int64_t first, count;

  template <class Void>
  Void* of(Void* array, Dtype dtype) const {
    using Byte = std::conditional_t<std::is_const_v<Void>, const char, char>;
    return static_cast<Byte*>(array) + first * static_cast<std::int64_t>(size_of(dtype));
  }
  // The chunk's values: where they lie if they are FP32, else widened into `buffer`.
  float* values(void* array, Dtype dtype, float* buffer) const {
    if (dtype == Dtype::f32) return static_cast<float*>(array) + first;
    widen(of(array, dtype), dtype, buffer, count);
    return buffer;
  }
  // The gradient without its scale; with scale 1, as stored.
  const float* unscaled(const void* gradient, Dtype dtype, float scale, float* buffer) const {
    if (dtype == Dtype::f32 && scale == 1) return static_cast<const float*>(gradient) + first;
    widen(of(gradient, dtype), dtype, buffer, count);
    const float inverse = 1 / scale;
    if (scale != 1)
      for (std::int64_t i = 0; i < count; ++i) buffer[i] *= inverse;
    return buffer;
  }
};

}  // namespace

void sgd_piece(const SgdRule& rule, const UpdateStep& step, const UpdateArrays& arrays,
               std::int64_t begin, std::int64_t count) {
  float weight_buffer[kChunk], gradient_buffer[kChunk], momentum_buffer[kChunk];
  const auto put = [&](const Chunk& chunk, const float* values, Dtype dtype, void* array,
                       Draw draw) {
    if (arrays.rounding == Rounding::nearest)
      return narrow(values, dtype, chunk.of(array, dtype), chunk.count);
    round_stochastically({step.seed, static_cast<std::uint32_t>(step.number), draw, arrays.stream},
                         values, dtype, chunk.of(array, dtype), chunk.first, chunk.count);
  };
  for (std::int64_t done = 0; done < count; done += kChunk) {
    const Chunk chunk{begin + done, std::min(kChunk, count - done)};
    float* weights = arrays.master
                         ? arrays.master + chunk.first
                         : chunk.values(arrays.weights, arrays.weight_dtype, weight_buffer);
    const float* gradient = chunk.unscaled(arrays.gradient, arrays.gradient_dtype,
                                           step.gradient_scale, gradient_buffer);
    float* momentum = chunk.values(arrays.state[0], arrays.state_dtype, momentum_buffer);
    for (std::int64_t i = 0; i < chunk.count; ++i) {
      const float g = gradient[i] + rule.weight_decay * weights[i];
      const float m = rule.momentum * momentum[i] + g;
      momentum[i] = m;
      weights[i] -= step.learning_rate * (rule.nesterov ? g + rule.momentum * m : m);
    }
    if (arrays.weight_dtype != Dtype::f32)
      put(chunk, weights, arrays.weight_dtype, arrays.weights, kWeights);
    if (arrays.state_dtype != Dtype::f32)
      put(chunk, momentum, arrays.state_dtype, arrays.state[0], kState);
  }
}

}  // namespace memfloor::cpu

// Layer normalisation (Ba, Kiros and Hinton 2016) over the channels of a row; statistics and
// parameters in FP32.
#pragma once

#include <compare>
#include <cstdint>

#include "core/dtype.h"

namespace memfloor {

struct LayerNormDescriptor {
  std::int64_t channels = 0;
  Dtype dtype = Dtype::f32;  // of x, y and their gradients

  auto operator<=>(const LayerNormDescriptor&) const = default;
};

struct LayerNormPlan {
  std::int64_t backward_scratch = 0;  // bytes, whatever the number of rows
};

/// In backward it reads its input and the statistics.
class LayerNorm {
 public:
  static constexpr float kEpsilon = 1e-5f;  // PyTorch's default

  virtual ~LayerNorm() = default;
  const LayerNormPlan& plan() const { return plan_; }

  /// y = (x - mean) * inverse_deviation * gamma + beta. statistics (rows, 2) f32: mean and inverse
  /// deviation (of the biased variance), overwritten.
  virtual void forward(std::int64_t rows, const void* x, const float* gamma, const float* beta,
                       void* y, float* statistics) const = 0;

  /// dx may be dy. dgamma, dbeta: (channels) f32, overwritten, summed in an order fixed by `rows`.
  virtual void backward(std::int64_t rows, const void* x, const float* statistics,
                        const float* gamma, const void* dy, void* dx, float* dgamma, float* dbeta,
                        void* scratch) const = 0;

 protected:
  LayerNormPlan plan_;
};

}  // namespace memfloor

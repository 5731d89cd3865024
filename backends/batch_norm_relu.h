// Batch normalisation followed by ReLU, NHWC, statistics and parameters in FP32.
#pragma once

#include <compare>
#include <cstdint>

#include "core/dtype.h"

namespace memfloor {

struct BatchNormReluDescriptor {
  std::int64_t images = 0, height = 0, width = 0, channels = 0;
  Dtype dtype = Dtype::f32;  // of x, y and their gradients

  std::int64_t pixels() const { return height * width; }
  auto operator<=>(const BatchNormReluDescriptor&) const = default;
};

struct BatchNormReluPlan {
  std::int64_t backward_scratch = 0;
};

/// What backward starts with, and what the op that makes dy can do while dy is in the cache: dy is
/// set to zero where y is not positive, then summed over the pixels of each image.
struct MaskedGradientSums {
  const void* x = nullptr;      // input of the batch norm
  const void* y = nullptr;      // its output: the ReLU's mask
  const float* mean = nullptr;  // (channels)
  float* sums = nullptr;        // (images, 2, channels): of dy, and of dy (x - mean)
};

/// In backward it reads its input, its output (the ReLU's mask), the mean and the inverse
/// deviation.
class BatchNormRelu {
 public:
  static constexpr float kEpsilon = 1e-5f;  // PyTorch's defaults, as in the DSR recipe
  static constexpr float kMomentum = 0.1f;

  virtual ~BatchNormRelu() = default;
  const BatchNormReluPlan& plan() const { return plan_; }

  /// statistics (images, 2, channels): for each image and channel of x its mean and its sum of
  /// squared deviations. Needed only where the op that made x has not left them.
  virtual void statistics(const void* x, float* statistics) const = 0;

  /// mean and inverse deviation (biased variance) over all images, each (channels).
  /// `running` if not null: (2, channels), the running mean and unbiased variance, moved once by
  /// the share `momentum` towards those of this part.
  virtual void reduce(const float* statistics, float* mean, float* inverse_deviation,
                      float* running, float momentum) const = 0;

  /// The inverse deviation for evaluation, from running (2, channels).
  virtual void inverse_running_deviation(const float* running, float* inverse_deviation) const = 0;

  /// y = max(0, (x - mean) * inverse_deviation * gamma + beta)
  virtual void forward(const void* x, const float* mean, const float* inverse_deviation,
                       const float* gamma, const float* beta, void* y) const = 0;

  /// Masks dy in place and fills `m.sums`. Needed only where the op that made dy has not done it.
  virtual void mask_gradient(const MaskedGradientSums& m, void* dy) const = 0;

  /// dy is masked, `sums` are its sums. dx = ..., or dx += when `accumulate`; dx may be dy.
  /// dgamma, dbeta: (channels) f32, overwritten.
  virtual void backward(const void* x, const void* dy, const float* mean,
                        const float* inverse_deviation, const float* gamma, const float* sums,
                        void* dx, bool accumulate, float* dgamma, float* dbeta,
                        void* scratch) const = 0;

 protected:
  BatchNormReluPlan plan_;
};

}  // namespace memfloor

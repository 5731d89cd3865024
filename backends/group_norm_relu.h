// Group normalisation (Wu and He 2018) followed by ReLU, NHWC, statistics and parameters in FP32.
// Every image is normalised by itself: its bits do not depend on what else is in the batch.
#pragma once

#include <compare>
#include <cstdint>

#include "core/dtype.h"

namespace memfloor {

struct GroupNormReluDescriptor {
  std::int64_t images = 0, height = 0, width = 0, channels = 0;
  std::int64_t groups = 1;   // of neighbouring channels, equally large
  Dtype dtype = Dtype::f32;  // of x, y and their gradients

  std::int64_t pixels() const { return height * width; }
  auto operator<=>(const GroupNormReluDescriptor&) const = default;
};

struct GroupNormReluPlan {
  std::int64_t forward_scratch = 0, backward_scratch = 0;
};

/// In backward it reads its input, its output (the ReLU's mask) and the statistics.
class GroupNormRelu {
 public:
  static constexpr float kEpsilon = 1e-5f;  // PyTorch's default

  virtual ~GroupNormRelu() = default;
  const GroupNormReluPlan& plan() const { return plan_; }

  /// y = max(0, (x - mean) * inverse_deviation * gamma + beta), the biased variance being over an
  /// image's group. statistics (images, 2, groups): mean and inverse deviation, overwritten.
  virtual void forward(const void* x, const float* gamma, const float* beta, void* y,
                       float* statistics, void* scratch) const = 0;

  /// Masks dy in place. dx = ..., or dx += when `accumulate`; dx may be dy.
  /// dgamma, dbeta: (channels) f32, overwritten; summed image by image, in order.
  virtual void backward(const void* x, const void* y, const float* statistics, const float* gamma,
                        void* dy, void* dx, bool accumulate, float* dgamma, float* dbeta,
                        void* scratch) const = 0;

 protected:
  GroupNormReluPlan plan_;
};

}  // namespace memfloor

// Two-dimensional convolution without bias, NHWC, square kernel, padding kernel / 2.
#pragma once

#include <compare>
#include <cstdint>

#include "backends/batch_norm_relu.h"
#include "backends/non_zero_layout.h"

namespace memfloor {

struct ConvolutionDescriptor {
  std::int64_t images = 0, height = 0, width = 0, channels_in = 0, channels_out = 0;
  int kernel = 3;
  int stride = 1;
  Dtype dtype = Dtype::f32;  // of activations and their gradients

  std::int64_t out_height() const { return (height + 2 * (kernel / 2) - kernel) / stride + 1; }
  std::int64_t out_width() const { return (width + 2 * (kernel / 2) - kernel) / stride + 1; }
  auto operator<=>(const ConvolutionDescriptor&) const = default;
};

/// What running one op costs and needs; bytes of scratch are of `workspace`.
struct ConvolutionPlan {
  std::int64_t multiply_adds = 0;  // of forward; each backward direction costs the same
  WeightLayout forward_weights, backward_weights;  // what forward and backward_data read
  WeightLayout gradient;                           // what backward_weights writes, f32
  /// Compressed weights may come as their non-zeros instead, where both layouts are given.
  NonZeroLayout forward_non_zeros, backward_non_zeros;
  std::int64_t forward_scratch = 0, backward_data_scratch = 0, backward_weights_scratch = 0;
  std::int64_t forward_non_zeros_scratch = 0, backward_data_non_zeros_scratch = 0;
};

/// In backward it reads its input (for the weights' gradient).
class Convolution {
 public:
  virtual ~Convolution() = default;
  const ConvolutionPlan& plan() const { return plan_; }

  /// y (images, out_height, out_width, channels_out) = x * w [+ residual of y's shape].
  /// `statistics` if not null: (images, 2, channels_out) f32, for each image and channel of y its
  /// mean and its sum of squared deviations, taken while y is in the cache.
  virtual void forward(const void* x, const PackedWeights& weights, const void* residual, void* y,
                       float* statistics, void* scratch) const = 0;

  /// dx = dy * w^T, or dx += when `accumulate`. `masked` if not null: x came from a batch norm +
  /// ReLU and dx is complete with this; its backward's first pass is done while dx is in the cache.
  virtual void backward_data(const void* dy, const PackedWeights& weights, void* dx,
                             bool accumulate, const MaskedGradientSums* masked,
                             void* scratch) const = 0;

  /// dw, in the plan's gradient layout, overwritten; its padding is indeterminate.
  virtual void backward_weights(const void* x, const void* dy, float* dw, void* scratch) const = 0;

 protected:
  ConvolutionPlan plan_;
};

}  // namespace memfloor

// Matrix products over rows: y = x w^T + b, for any number of rows.
#pragma once

#include <compare>
#include <cstdint>

#include "backends/weight_layout.h"

namespace memfloor {

struct ProjectionDescriptor {
  std::int64_t inputs = 0, outputs = 0;
  Dtype dtype = Dtype::f32;   // of x and of gradients of values
  Dtype output = Dtype::f32;  // of y: dtype, or f32

  auto operator<=>(const ProjectionDescriptor&) const = default;
};

/// Bytes of scratch are of `workspace` and independent of the number of rows.
struct ProjectionPlan {
  WeightLayout forward_weights, backward_weights;  // what forward and backward_data read
  WeightLayout gradient;                           // what backward_weights writes, f32
  std::int64_t forward_scratch = 0, backward_data_scratch = 0, backward_weights_scratch = 0;
};

/// In backward it reads its input (for the weights' gradient). A row's bits do not depend on the
/// other rows.
class Projection {
 public:
  virtual ~Projection() = default;
  const ProjectionPlan& plan() const { return plan_; }

  /// y (rows, outputs) = x (rows, inputs) * w^T [+ bias, (outputs) f32], then max(0, y) where
  /// `relu`.
  virtual void forward(std::int64_t rows, const void* x, const void* weights, const float* bias,
                       bool relu, void* y, void* scratch) const = 0;

  /// dx (rows, inputs) = dy * w, or dx += when `accumulate`. dy has the descriptor's dtype.
  virtual void backward_data(std::int64_t rows, const void* dy, const void* weights, void* dx,
                             bool accumulate, void* scratch) const = 0;

  /// dw, in the plan's gradient layout, overwritten; its padding is indeterminate. db (outputs) f32
  /// if not null: overwritten by the sums of dy's columns, summed in an order fixed by `rows`.
  virtual void backward_weights(std::int64_t rows, const void* x, const void* dy, float* dw,
                                float* db, void* scratch) const = 0;

 protected:
  ProjectionPlan plan_;
};

}  // namespace memfloor

// Values that flow through a model: a tensor, and the place where its gradient is collected.
//
// Data and gradient live apart: an op that needs only a value's gradient in backward does not keep
// its data alive. The data is freed when neither forward code nor a recorded op holds it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/sequences.h"
#include "core/tensor.h"

namespace memfloor {

/// Where consumers of a value add their gradients, in global reverse order, in one buffer.
struct GradientSlot {
  Shape shape;
  Dtype dtype = Dtype::f32;
  std::string label;
  Tensor tensor;      // empty until the first consumer writes
  int consumers = 0;  // recorded ops that will still add to it
};
using Gradient = std::shared_ptr<GradientSlot>;

struct Context;
struct ValueNode;
using Value = std::shared_ptr<ValueNode>;
using Values = std::vector<Value>;

/// Fills a value's data, which is allocated.
using Compute = std::function<void(Context&, ValueNode&)>;

/// In a replay: how a value that nothing has read yet is made.
struct Deferred {
  std::string label;
  Values inputs;  // what `compute` reads
  Compute compute;
};

/// On a value that a batch norm + ReLU made: what the op that completes its gradient needs in order
/// to do the first pass of that batch norm's backward while the gradient is in the cache (see
/// MaskedGradientSums).
struct NormalizedBy {
  Value input;
  std::shared_ptr<Tensor> mean;
  Tensor gradient_sums;  // (images, 2, channels) f32; there once the gradient is masked
};

struct ValueNode {
  Tensor data;  // shape and format only, where it is not made yet or not made at all
  std::unique_ptr<Deferred> deferred;
  Tensor
      statistics;  // (images, 2, channels) f32, where the producing op left them for a batch norm
  Gradient gradient;                            // null where nothing upstream needs it
  std::shared_ptr<NormalizedBy> normalized_by;  // null for values that other ops made
  std::shared_ptr<const Sequences> sequences;   // whose positions its rows are; null: no sentences'
  // (rows) vocabulary entries, in device memory: a value that stands for text has no data.
  const std::int32_t* tokens = nullptr;
  int readers = 0;  // recorded ops that still have to read `data` in backward
};

}  // namespace memfloor

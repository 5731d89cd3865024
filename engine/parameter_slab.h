// A slab of parameters: weights, their gradients and their optimizer state (FP32 master weights
// included), each one flat array in the format that the precision policy gives its role. Stores cut
// slabs into parameters.
#pragma once

#include <string>
#include <vector>

#include "core/safetensors.h"
#include "core/tensor.h"
#include "engine/optimizer.h"
#include "engine/precision_policy.h"

namespace memfloor {

/// A named flat tensor that a snapshot has to hold to continue exactly.
struct StateTensor {
  StateTensor(std::string name_, StoredType type_, std::int64_t elements_, void* data_)
      : name(std::move(name_)), type(type_), elements(elements_), data(data_) {}
  StateTensor(std::string name_, Dtype dtype, std::int64_t elements_, void* data_)
      : StateTensor(std::move(name_), stored_type_of(dtype), elements_, data_) {}

  std::int64_t bytes() const { return elements * size_of(type); }

  std::string name;
  StoredType type;
  std::int64_t elements;
  void* data;
};

class ParameterSlab {
 public:
  /// Contents are indeterminate. `name` tells its tensors apart from other slabs': "weights" of an
  /// unnamed slab are "<name>.weights" of a named one, and their stochastic rounding is
  /// independent.
  void allocate(Ledger& ledger, TensorOps& ops, std::int64_t elements,
                const PrecisionPolicy& formats, int optimizer_states, std::string name);

  std::int64_t elements() const { return elements_; }
  const PrecisionPolicy& formats() const { return formats_; }

  /// Element `offset` of the array.
  void* weights(std::int64_t offset = 0) const { return at(weights_, offset); }
  void* gradients(std::int64_t offset = 0) const { return at(gradients_, offset); }

  /// Writes initial or imported weights, and their masters; `fill` is handed host memory for
  /// `count` floats, in order.
  void write_weights(std::int64_t offset, std::int64_t count,
                     const std::function<void(float* host)>& fill);
  /// As forward reads them, not the masters.
  void read_weights(std::int64_t offset, std::int64_t count, float* to) const;
  void read_gradients(std::int64_t offset, std::int64_t count, float* to) const;

  void zero_state();
  bool gradients_finite() const;
  void update(const Optimizer& optimizer, const UpdateStep& step);

  /// Weights and optimizer state (masters included).
  std::vector<StateTensor> state();

 private:
  static void* at(const Tensor& array, std::int64_t offset) {
    return static_cast<char*>(array.raw()) +
           offset * static_cast<std::int64_t>(size_of(array.dtype()));
  }

  std::string name_;
  PrecisionPolicy formats_;
  TensorOps* ops_ = nullptr;
  std::int64_t elements_ = 0;
  Tensor weights_, master_, gradients_;  // no master: empty
  std::vector<Tensor> states_;
};

}  // namespace memfloor

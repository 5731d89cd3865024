// Optimizers update flat arrays; which arrays there are is the parameter store's business.
#pragma once

#include "backends/tensor_ops.h"

namespace memfloor {

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// State tensors of the weights' size (momentum: 1; Adam: 2).
  virtual int states() const = 0;
  virtual void update(TensorOps& ops, const UpdateStep& step, const UpdateArrays& arrays) const = 0;
};

/// SGD with momentum; see SgdRule for the formula.
class Sgd final : public Optimizer {
 public:
  Sgd(float momentum, float weight_decay, bool nesterov)
      : rule_{momentum, weight_decay, nesterov} {}
  int states() const override { return 1; }
  void update(TensorOps& ops, const UpdateStep& step, const UpdateArrays& arrays) const override {
    ops.sgd(rule_, step, arrays);
  }

 private:
  SgdRule rule_;
};

/// See AdamRule for the formula.
class Adam final : public Optimizer {
 public:
  explicit Adam(const AdamRule& rule) : rule_(rule) {}
  int states() const override { return 2; }
  void update(TensorOps& ops, const UpdateStep& step, const UpdateArrays& arrays) const override {
    ops.adam(rule_, step, arrays);
  }

 private:
  AdamRule rule_;
};

}  // namespace memfloor

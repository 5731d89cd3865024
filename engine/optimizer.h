// Optimizers update flat arrays; which arrays there are is the parameter store's business.
#pragma once

#include <array>
#include <cstdint>

#include "backends/tensor_ops.h"

namespace memfloor {

class Optimizer {
 public:
  static constexpr int kMaxStates = 2;
  virtual ~Optimizer() = default;
  /// State tensors of the weights' size (momentum: 1; Adam: 2).
  virtual int states() const = 0;
  virtual void update(TensorOps& ops, std::int64_t elements, float* weights, const float* gradient,
                      const std::array<float*, kMaxStates>& state, float learning_rate) const = 0;
};

/// SGD with momentum; see SgdStep for the formula.
class Sgd final : public Optimizer {
 public:
  Sgd(float momentum, float weight_decay, bool nesterov)
      : step_{0, momentum, weight_decay, nesterov} {}
  int states() const override { return 1; }
  void update(TensorOps& ops, std::int64_t elements, float* weights, const float* gradient,
              const std::array<float*, kMaxStates>& state, float learning_rate) const override {
    SgdStep step = step_;
    step.learning_rate = learning_rate;
    ops.sgd(step, elements, weights, gradient, state[0]);
  }

 private:
  SgdStep step_;
};

}  // namespace memfloor

// Low precision's seam: which format has each role, how updates round, and how the loss is scaled.
#pragma once

#include <cstdint>
#include <string>

#include "backends/tensor_ops.h"

namespace memfloor {

/// "Off" is the default: everything FP32. Normalisation parameters and statistics, the classifier
/// head and the loss are FP32 under every policy.
struct PrecisionPolicy {
  std::string name = "fp32";
  Dtype weight = Dtype::f32;
  Dtype gradient = Dtype::f32;  // of weights
  Dtype optimizer_state = Dtype::f32;
  Dtype activation = Dtype::f32;  // and its gradient
  bool master = false;  // updates move FP32 copies of the weights, which are optimizer state
  Rounding rounding = Rounding::nearest;
};

/// Where a loss scaler stands: what a snapshot has to hold of it.
struct LossScale {
  float scale = 1;
  std::int64_t clean_minibatches = 0;  // without an overflow, since the scale last changed
};

/// One scale per minibatch. "Off" is a scale of 1 that accepts every update.
class LossScaler {
 public:
  virtual ~LossScaler() = default;
  /// Told whether the minibatch's gradients are all finite; says whether to update. May change the
  /// scale of later minibatches, and throws Error where training cannot go on.
  virtual bool accept(bool /*finite*/) { return true; }
  /// Whether gradients have to be looked at for accept().
  virtual bool checks() const { return false; }

  float scale() const { return state_.scale; }
  const LossScale& state() const { return state_; }
  void resume_from(const LossScale& state) { state_ = state; }

 protected:
  LossScale state_;
};

}  // namespace memfloor

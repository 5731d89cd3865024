// Low precision's seam: which format has each role, and how the loss is scaled.
#pragma once

#include <string>

#include "core/dtype.h"

namespace memfloor {

/// "Off" is the default: everything FP32. Normalisation parameters and statistics, the classifier
/// head and the loss are FP32 under every policy.
struct PrecisionPolicy {
  std::string name = "fp32";
  Dtype weight = Dtype::f32;
  Dtype gradient = Dtype::f32;  // of weights
  Dtype optimizer_state = Dtype::f32;
  Dtype activation = Dtype::f32;  // and its gradient
};

/// One scale per minibatch. "Off" is a scale of 1 that accepts every update.
class LossScaler {
 public:
  virtual ~LossScaler() = default;
  virtual float scale() const { return 1; }
  /// Told whether the minibatch's gradients are all finite; says whether to update.
  virtual bool accept(bool /*finite*/) { return true; }
  /// Whether gradients have to be looked at for accept().
  virtual bool checks() const { return false; }
};

}  // namespace memfloor

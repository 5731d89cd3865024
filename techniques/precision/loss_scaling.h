// Dynamic loss scaling, by fairseq's rule of April 2019 (optim/fp16_optimizer): gradients that FP16
// would lose below 6e-8 are kept by scaling the loss up, as far as nothing overflows.
#pragma once

#include "engine/precision_policy.h"

namespace memfloor {

/// Begins at `initial_scale`; doubles after `window` minibatches in a row without an overflow; an
/// overflow halves it and forbids the update.
class DynamicLossScaler final : public LossScaler {
 public:
  static constexpr double kInitialScale = 128;  // where `initial_scale` is 0
  static constexpr float kSmallestScale = 1e-4f;

  /// Throws InputError for a scale that float32 cannot hold or that is below the smallest.
  DynamicLossScaler(double initial_scale, std::int64_t window);

  bool checks() const override { return true; }
  /// Throws Error once the scale falls below the smallest: no scale helps a training that has
  /// diverged.
  bool accept(bool finite) override;

 private:
  std::int64_t window_;
};

}  // namespace memfloor

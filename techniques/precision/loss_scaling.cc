#include "techniques/precision/loss_scaling.h"

#include <cmath>

#include "core/error.h"

namespace memfloor {

DynamicLossScaler::DynamicLossScaler(double initial_scale, std::int64_t window) : window_(window) {
  state_.scale = static_cast<float>(initial_scale == 0 ? kInitialScale : initial_scale);
  if (!(std::isfinite(state_.scale) && state_.scale >= kSmallestScale))
    throw InputError(concat("--loss-scale is a number that float32 can hold, at least ",
                            kSmallestScale, ", not ", initial_scale));
}

bool DynamicLossScaler::accept(bool finite) {
  if (!finite) {
    state_ = {state_.scale / 2, 0};
    if (state_.scale < kSmallestScale)
      throw Error(concat("gradients overflow FP16 whatever the loss scale, which has fallen below ",
                         kSmallestScale,
                         ": the training has diverged; lower --learning-rate, or use a bf16 mode "
                         "of --precision, which has the range of FP32"));
  } else if (++state_.clean_minibatches >= window_) {
    // At the end of float32 it stays: gradients that are all zero overflow nowhere.
    const float doubled = 2 * state_.scale;
    state_ = {std::isfinite(doubled) ? doubled : state_.scale, 0};
  }
  return finite;
}

}  // namespace memfloor

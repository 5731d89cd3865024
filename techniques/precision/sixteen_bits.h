// The 16-bit modes: FP16 or BF16, and how much of a parameter stays FP32. Activations and their
// gradients are 16 bits in all of them.
#pragma once

#include "engine/precision_policy.h"

namespace memfloor {

/// Weights, gradients and optimizer state in 16 bits, rounded stochastically: late updates are
/// below half a unit in the last place, and rounding to nearest would lose them.
PrecisionPolicy pure(Dtype dtype);

/// Weights and gradients in 16 bits; FP32 master weights and state, counted as optimizer state.
PrecisionPolicy with_masters(Dtype dtype);

/// FP32 weights, gradients and optimizer state; weights are cast layer by layer as workspace. What
/// automatic mixed precision does.
PrecisionPolicy mixed(Dtype dtype);

/// Overrides the mode's rounding with "nearest" or "stochastic". Throws InputError for another
/// word, and for stochastic rounding where no update stores anything in 16 bits.
void set_rounding(PrecisionPolicy& policy, const std::string& rounding);

}  // namespace memfloor

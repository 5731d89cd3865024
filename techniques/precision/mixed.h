// Mixed precision: FP32 weights, gradients and optimizer state; activations and their gradients in
// 16 bits; weights cast layer by layer as workspace. What automatic mixed precision does.
#pragma once

#include "engine/precision_policy.h"

namespace memfloor {

PrecisionPolicy bf16_mixed();

}  // namespace memfloor

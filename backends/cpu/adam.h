// Adam with decoupled weight decay over a piece of flat arrays, whatever format each is stored in.
#pragma once

#include "backends/tensor_ops.h"

namespace memfloor::cpu {

/// Elements [begin, begin + count), run by one thread. `begin` is a multiple of kRoundingBlock
/// (stochastic_rounding.h). FP16 states saturate: 16 is their largest magnitude.
void adam_piece(const AdamRule& rule, const UpdateStep& step, const UpdateArrays& arrays,
                std::int64_t begin, std::int64_t count);

}  // namespace memfloor::cpu

// Dense weights brought into the order that a kernel wants them in.
#pragma once

#include "backends/cpu/thread_pool.h"
#include "backends/weight_layout.h"

namespace memfloor::cpu {

/// TensorOps::pack_weights.
void pack_weights(ThreadPool& pool, const void* dense, Dtype from, const WeightLayout& layout,
                  void* packed);

}  // namespace memfloor::cpu

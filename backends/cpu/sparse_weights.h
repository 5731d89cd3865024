// Compressed weights on their way to a kernel, and a kernel's dense gradient on its way back.
#pragma once

#include "backends/cpu/thread_pool.h"
#include "backends/non_zero_layout.h"
#include "backends/sparse_pattern.h"

namespace memfloor::cpu {

// See TensorOps::unpack_sparse, TensorOps::list_non_zeros and TensorOps::gather_gradient.
void unpack_sparse_weights(ThreadPool& pool, const void* values, Dtype from,
                           const SparsePattern& pattern, std::int64_t first_output,
                           const WeightLayout& layout, void* packed);
void list_non_zeros(ThreadPool& pool, const void* values, Dtype from, const SparsePattern& pattern,
                    const NonZeroLayout& layout, void* packed);
void gather_sparse_gradient(ThreadPool& pool, const float* dw, const WeightLayout& layout,
                            const SparsePattern& pattern, std::int64_t first_output, void* gradient,
                            Dtype to, bool accumulate);

}  // namespace memfloor::cpu

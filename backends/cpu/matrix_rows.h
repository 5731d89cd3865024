// Rows of a matrix by their numbers: what an embedding reads and where its gradient goes.
#pragma once

#include "backends/cpu/thread_pool.h"
#include "backends/sparse_pattern.h"
#include "core/dtype.h"

namespace memfloor::cpu {

// See the ops of TensorOps that have these names.
void gather_rows(ThreadPool& pool, const void* matrix, Dtype from, std::int64_t outputs,
                 std::int64_t inputs, const std::int32_t* rows, std::int64_t count, Dtype to,
                 void* y);
void add_rows(ThreadPool& pool, const void* x, Dtype from, const std::int32_t* rows,
              std::int64_t count, void* matrix, Dtype to, std::int64_t outputs, std::int64_t inputs,
              void* scratch);
void gather_sparse_rows(ThreadPool& pool, const void* values, Dtype from,
                        const SparsePattern& pattern, const std::int32_t* rows, std::int64_t count,
                        Dtype to, void* y, void* scratch);
void add_sparse_rows(ThreadPool& pool, const void* x, Dtype from, const std::int32_t* rows,
                     std::int64_t count, void* values, Dtype to, const SparsePattern& pattern,
                     void* scratch);

}  // namespace memfloor::cpu

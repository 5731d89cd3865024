// How work on rows is cut; see slices.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cpu/slices.h"
#include "backends/cpu/thread_pool.h"
#include "backends/sequences.h"

namespace memfloor::cpu {

/// Calls body(first, last) for blocks of neighbouring rows, in parallel.
template <class Body>
void for_row_blocks(ThreadPool& pool, std::int64_t rows, Body&& body) {
  constexpr std::int64_t kBlock = 16;
  pool.parallel_for(ceil_div(rows, kBlock), [&](std::int64_t block, int) {
    body(block * kBlock, std::min(rows, (block + 1) * kBlock));
  });
}

/// Calls body(row, sentence, position in the sentence) for every row, in parallel.
template <class Body>
void for_each_row(ThreadPool& pool, const Sequences& sequences, Body&& body) {
  const auto& first_row = sequences.first_row;
  for_row_blocks(pool, sequences.rows(), [&](std::int64_t first, std::int64_t last) {
    auto next = std::upper_bound(first_row.begin(), first_row.end(), first);
    for (std::int64_t row = first; row < last; ++row) {
      while (row >= *next) ++next;
      body(row, next - first_row.begin() - 1, row - *(next - 1));
    }
  });
}

/// `thread`'s piece of scratch that is `bytes` a thread.
inline float* thread_scratch(void* scratch, int thread, std::int64_t bytes) {
  return reinterpret_cast<float*>(static_cast<char*>(scratch) + thread * bytes);
}

}  // namespace memfloor::cpu

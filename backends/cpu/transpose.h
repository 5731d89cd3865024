// A square of parts, transposed in registers.
#pragma once

#include <cstdint>

#include "backends/cpu/lanes.h"

namespace memfloor::cpu {

using PartIndices = std::int32_t __attribute__((vector_size(4 * kPart)));

/// Exchanges, in blocks of kStep lanes, the right half of `a` with the left half of `b`.
template <int kStep>
[[gnu::always_inline]] inline void exchange_halves(Part& a, Part& b) {
  PartIndices low{}, high{};
  for (int i = 0; i < kPart; ++i) {
    const bool right = (i & kStep) != 0;
    low[i] = right ? kPart + i - kStep : i;
    high[i] = right ? kPart + i : i + kStep;
  }
#if defined(__clang__)
  Part x, y;
  for (int i = 0; i < kPart; ++i) {
    x[i] = low[i] < kPart ? a[low[i]] : b[low[i] - kPart];
    y[i] = high[i] < kPart ? a[high[i]] : b[high[i] - kPart];
  }
#else
  const Part x = __builtin_shuffle(a, b, low), y = __builtin_shuffle(a, b, high);
#endif
  a = x;
  b = y;
}

/// Transposes the square: ever larger blocks change places across the diagonal.
template <int kStep = 1>
[[gnu::always_inline]] inline void transpose(Part (&rows)[kPart]) {
  if constexpr (kStep < kPart) {
#pragma GCC unroll 16
    for (int r = 0; r < kPart; ++r)
      if (!(r & kStep)) exchange_halves<kStep>(rows[r], rows[r + kStep]);
    transpose<2 * kStep>(rows);
  }
}

}  // namespace memfloor::cpu

// Our own FP32 matrix products: any number of rows, nothing prepared for a number of them, no
// scratch of their own, one thread. A tile of sums, kTileRows rows by a panel of columns, stays in
// registers while the depth is walked.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cpu/lanes.h"

namespace memfloor::cpu {

/// Columns that lie together: a right-hand factor is stored as [column / kPanel][depth][column %
/// kPanel], its last panel padded with anything finite.
inline constexpr int kPanel = 2 * kPart;
/// Of 16 (AVX-512: 32) vector registers, 2 hold a row of the panel, 1 an element of the left-hand
/// factor, and 12 (24) sums. Not above kPart.
inline constexpr int kTileRows = kPart == 16 ? 12 : kPart == 8 ? 6 : 4;

/// What happens to a sum: c = [c +] sum [+ bias], then max(0, c) where `relu`.
struct ProductFinish {
  bool add = false;
  const float* bias = nullptr;  // (columns)
  bool relu = false;
};

/// c (rows, columns) = a (rows, depth) * panels, the last row of a and c being row 0 plus (rows -
/// 1) * stride. An element's bits depend on its row of a, its column and `finish` only.
void multiply(std::int64_t rows, std::int64_t columns, std::int64_t depth, const float* a,
              std::int64_t a_stride, const float* panels, float* c, std::int64_t c_stride,
              const ProductFinish& finish);

/// c (rows, columns) [+]= a^T b for a (depth, rows), b (depth, columns), columns <= kPanel. `a` is
/// stored in groups of kTileRows rows, `a_stride` elements apart, a group as [depth][row %
/// kTileRows], the last one padded with anything finite; `panel` is b as one panel.
void multiply_transposed(std::int64_t rows, int columns, std::int64_t depth, const float* a,
                         std::int64_t a_stride, const float* panel, float* c, std::int64_t c_stride,
                         bool add);

}  // namespace memfloor::cpu

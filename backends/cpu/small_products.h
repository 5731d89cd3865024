// Products of small matrices, of sentences and heads, run by one thread: FP32 sums in the order of
// the summed index, operands as they are stored. Rows of B and C lie a stride apart, so that a head
// is a column block of a larger matrix.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "backends/cpu/lane_math.h"
#include "backends/cpu/row_lanes.h"

namespace memfloor::cpu {

/// A matrix's element (i, j) is at data[i * row + j * column].
template <class T>
struct MatrixView {
  T* data;
  std::int64_t row, column = 1;

  T* at(std::int64_t i, std::int64_t j) const { return data + i * row + j * column; }
};

namespace detail {

// Rows and groups of sixteen columns whose sums stay in registers.
template <int Rows, int Groups, class B, class C, class Width>
void product_tile(std::int64_t inner, const MatrixView<const float>& a, const B* b,
                  std::int64_t b_row, C* c, std::int64_t c_row, Width width) {
  Lanes sums[Rows][Groups] = {};
#pragma GCC unroll 4
  for (std::int64_t p = 0; p < inner; ++p)
    for (int g = 0; g < Groups; ++g) {
      const Lanes v = load(b + p * b_row + g * kLanes, width);
      for (int r = 0; r < Rows; ++r) sums[r][g] += v * *a.at(r, p);
    }
  for (int r = 0; r < Rows; ++r)
    for (int g = 0; g < Groups; ++g) store(c + r * c_row + g * kLanes, sums[r][g], width);
}

template <int Rows, class B, class C>
void product_rows(std::int64_t columns, std::int64_t inner, const MatrixView<const float>& a,
                  const B* b, std::int64_t b_row, C* c, std::int64_t c_row) {
  constexpr int kGroups = (kPart == 16 ? 8 : 4) / Rows;  // about half of the registers
  std::int64_t j = 0;
  for (; j + kGroups * kLanes <= columns; j += kGroups * kLanes)
    product_tile<Rows, kGroups>(inner, a, b + j, b_row, c + j, c_row, WholeLanes{});
  for_lanes(columns - j, [&](std::int64_t rest, auto width) {
    product_tile<Rows, 1>(inner, a, b + j + rest, b_row, c + j + rest, c_row, width);
  });
}

// Columns of C, one row: sums of products of a row of A with rows of B.
template <int Columns, class A, class B>
void dot_tile(std::int64_t inner, const A* a, const B* b, std::int64_t b_row, float scale,
              float* c) {
  Lanes sums[Columns] = {};
  for_lanes(inner, [&](std::int64_t p, auto width) {
    const Lanes v = load(a + p, width);
    for (int j = 0; j < Columns; ++j) sums[j] += v * load(b + j * b_row + p, width);
  });
  if constexpr (Columns == 4) {
    const Quad four = cpu::sums(sums[0], sums[1], sums[2], sums[3]) * scale;
    std::memcpy(c, &four, sizeof four);
  } else {
    for (int j = 0; j < Columns; ++j) c[j] = scale * sum(sums[j]);
  }
}

}  // namespace detail

/// A copy of (rows, columns) without gaps, as FP32. A head's rows lie a power of two apart, where
/// few of them fit into the nearest cache together, and 16-bit values are widened but once.
template <class T>
MatrixView<const float> packed(const MatrixView<const T>& from, std::int64_t rows,
                               std::int64_t columns, float* to) {
  for (std::int64_t i = 0; i < rows; ++i)
    for_lanes(columns, [&](std::int64_t j, auto width) {
      store(to + i * columns + j, load(from.at(i, j), width), width);
    });
  return {to, columns};
}

/// C (rows, columns) = A (rows, inner) B (inner, columns); C may not lie in B. B and C have unit
/// column strides.
template <class B, class C>
void multiply(std::int64_t rows, std::int64_t columns, std::int64_t inner,
              const MatrixView<const float>& a, const MatrixView<const B>& b,
              const MatrixView<C>& c) {
  std::int64_t i = 0;
  const auto some = [&](auto count) {
    detail::product_rows<decltype(count)::value>(columns, inner, {a.at(i, 0), a.row, a.column},
                                                 b.data, b.row, c.at(i, 0), c.row);
    i += count;
  };
  while (i + 4 <= rows) some(std::integral_constant<int, 4>{});
  if (i + 2 <= rows) some(std::integral_constant<int, 2>{});
  if (i < rows) some(std::integral_constant<int, 1>{});
}

/// c (columns) = scale * a (inner) B^T, where B is (columns, inner) with unit column stride.
template <class A, class B>
void multiply_transposed(std::int64_t columns, std::int64_t inner, const A* a,
                         const MatrixView<const B>& b, float scale, float* c) {
  std::int64_t j = 0;
  for (; j + 4 <= columns; j += 4) detail::dot_tile<4>(inner, a, b.at(j, 0), b.row, scale, c + j);
  for (; j < columns; ++j) detail::dot_tile<1>(inner, a, b.at(j, 0), b.row, scale, c + j);
}

}  // namespace memfloor::cpu

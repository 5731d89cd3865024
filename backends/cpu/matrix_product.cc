#include "backends/cpu/matrix_product.h"

#include <array>
#include <utility>

namespace memfloor::cpu {
namespace {

using Int = std::int64_t;

// So much of a panel (16 KiB on AVX2) stays in the first cache while the rows pass by.
constexpr Int kDepthBlock = 256;

Part finished(Part sum, const float* c, const float* bias, const ProductFinish& finish) {
  if (finish.add) sum = load_as<Part>(c) + sum;
  if (bias) sum += load_as<Part>(bias);
  return finish.relu ? max(Part{}, sum) : sum;  // NaN stays
}

struct Tile {
  Int depth;
  const float* a;
  Int a_stride;
  const float* b;
  float* c;
  Int c_stride;
  int columns;
};

/// kRows rows of sums. The left-hand factor's element (row, k) is a[row * stride + k], or, where
/// kTransposed, a[row + k * kTileRows].
template <int kRows, bool kTransposed>
void multiply_tile(const Tile& t, const ProductFinish& finish) {
  Part sum[kRows][2] = {};
  const float* a = t.a;
  const float* b = t.b;
  const Int stride = kTransposed ? 1 : t.a_stride;
  for (int r = 0; r < kRows; ++r) __builtin_prefetch(t.c + r * t.c_stride, 1);
// The loop's own instructions would take turns with the products.
#pragma GCC unroll 4
  for (Int k = 0; k < t.depth; ++k, a += kTransposed ? kTileRows : 1, b += kPanel) {
    const auto low = load_as<Part>(b), high = load_as<Part>(b + kPart);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const Part value = a[r * stride] - Part{};
      sum[r][0] += value * low;
      sum[r][1] += value * high;
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
    float* c = t.c + r * t.c_stride;
    if (t.columns == kPanel) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half)
        store_part(c + half * kPart,
                   finished(sum[r][half], c + half * kPart,
                            finish.bias ? finish.bias + half * kPart : nullptr, finish));
    } else {
      float padded_c[kPanel] = {}, padded_bias[kPanel] = {};
      if (finish.add) std::copy_n(c, t.columns, padded_c);
      if (finish.bias) std::copy_n(finish.bias, t.columns, padded_bias);
      for (int half = 0; half < 2; ++half)
        store_part(padded_c + half * kPart,
                   finished(sum[r][half], padded_c + half * kPart,
                            finish.bias ? padded_bias + half * kPart : nullptr, finish));
      std::copy_n(padded_c, t.columns, c);
    }
  }
}

using MultiplyTile = void (*)(const Tile&, const ProductFinish&);

/// The tiles of 1 to kTileRows rows.
template <bool kTransposed, int... kRows>
constexpr std::array<MultiplyTile, sizeof...(kRows)> tiles(std::integer_sequence<int, kRows...>) {
  return {multiply_tile<kRows + 1, kTransposed>...};
}
template <bool kTransposed>
constexpr auto kTiles = tiles<kTransposed>(std::make_integer_sequence<int, kTileRows>{});

}  // namespace

void multiply(Int rows, Int columns, Int depth, const float* a, Int a_stride, const float* panels,
              float* c, Int c_stride, const ProductFinish& finish) {
  for (Int k = 0; k < depth; k += kDepthBlock) {
    const Int block = std::min(kDepthBlock, depth - k);
    for (Int column = 0; column < columns; column += kPanel) {
      const ProductFinish block_finish{
          .add = finish.add || k > 0,
          .bias = finish.bias && k == 0 ? finish.bias + column : nullptr,
          .relu = finish.relu && k + block == depth};
      for (Int row = 0; row < rows; row += kTileRows) {
        const auto tile_rows = static_cast<int>(std::min<Int>(kTileRows, rows - row));
        kTiles<false>[tile_rows - 1](
            {block, a + row * a_stride + k, a_stride, panels + column * depth + k * kPanel,
             c + row * c_stride + column, c_stride,
             static_cast<int>(std::min<Int>(kPanel, columns - column))},
            block_finish);
      }
    }
  }
}

void multiply_transposed(Int rows, int columns, Int depth, const float* a, Int a_stride,
                         const float* panel, float* c, Int c_stride, bool add) {
  for (Int row = 0; row < rows; row += kTileRows) {
    const auto tile_rows = static_cast<int>(std::min<Int>(kTileRows, rows - row));
    kTiles<true>[tile_rows - 1](
        {depth, a + row / kTileRows * a_stride, 1, panel, c + row * c_stride, c_stride, columns},
        {.add = add});
  }
}

}  // namespace memfloor::cpu

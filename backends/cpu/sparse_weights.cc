#include "backends/cpu/sparse_weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "backends/cpu/convert.h"
#include "backends/cpu/slices.h"

namespace memfloor::cpu {
namespace {

// Layouts interleave up to 16 outputs in a cache line: they go to one thread.
constexpr std::int64_t kBlock = 16;
constexpr std::int64_t kMostSlices = 64;
constexpr std::int64_t kZeroPiece = 32768;  // bytes

// For every output and tap of a tile of `rows` rows, from row `first` on: visits the non-zeros with
// in_row(output of the tile, tap), a function of the place among the values and the input.
template <class InRow>
void for_each_in_tile(ThreadPool& pool, const SparsePattern& pattern, std::int64_t first,
                      std::int64_t rows, InRow&& in_row) {
  const std::int64_t step = ceil_div(ceil_div(rows, kMostSlices), kBlock) * kBlock;
  const std::int64_t slices = ceil_div(rows, step);
  // Where each slice's values begin: counting from the weight's first row once, not in every slice.
  std::array<std::int64_t, kMostSlices> begin{};
  begin[0] = values_in(pattern, 0, first);
  for (std::int64_t s = 1; s < slices; ++s)
    begin[s] = begin[s - 1] + values_in(pattern, first + (s - 1) * step, first + s * step);
  pool.parallel_for(slices, [&](std::int64_t s, int) {
    std::int64_t k = begin[s];
    for (std::int64_t o = s * step; o < std::min(rows, (s + 1) * step); ++o)
      for (std::int64_t t = 0; t < pattern.taps; ++t) {
        const std::int64_t column = t * pattern.inputs;
        const auto visit = in_row(o, t);
        for_each_in_columns(
            pattern, first + o, column, column + pattern.inputs, k,
            [visit, column](std::int64_t value, std::int64_t c) { visit(value, c - column); });
      }
  });
}

// Calls visit(k, offset in the layout) for the non-zeros of as many rows as the layout has.
template <class Visit>
void for_each_place(ThreadPool& pool, const SparsePattern& pattern, std::int64_t first,
                    const WeightLayout& layout, Visit&& visit) {
  for_each_in_tile(
      pool, pattern, first, layout.outputs(), [&layout, visit](std::int64_t o, std::int64_t t) {
        const std::int64_t at = layout.output[o] + layout.tap[t];
        const std::int64_t* const input = layout.input.data();
        return [visit, at, input](std::int64_t k, std::int64_t i) { visit(k, at + input[i]); };
      });
}

}  // namespace

void unpack_sparse_weights(ThreadPool& pool, const void* values, Dtype from,
                           const SparsePattern& pattern, std::int64_t first_output,
                           const WeightLayout& layout, void* packed) {
  const std::int64_t bytes = layout.bytes();
  pool.parallel_for(ceil_div(bytes, kZeroPiece), [&](std::int64_t piece, int) {
    const std::int64_t begin = piece * kZeroPiece;
    std::memset(static_cast<char*>(packed) + begin, 0,
                static_cast<std::size_t>(std::min(kZeroPiece, bytes - begin)));
  });
  with_dtype(from, [&](auto in) {
    with_dtype(layout.dtype, [&](auto out) {
      using From = decltype(in);
      using To = decltype(out);
      const auto* v = static_cast<const From*>(values);
      auto* to = static_cast<To*>(packed);
      for_each_place(pool, pattern, first_output, layout,
                     [v, to](std::int64_t k, std::int64_t at) { to[at] = converted<To>(v[k]); });
    });
  });
}

// Counts what is in every cell, sums up where each begins, and puts the non-zeros there in turn.
void list_non_zeros(ThreadPool& pool, const void* values, Dtype from, const SparsePattern& pattern,
                    const NonZeroLayout& layout, void* packed) {
  std::uint32_t* const starts = layout.starts(packed);
  NonZero* const entries = layout.entries(packed);
  std::uint32_t* const next = starts + 1;  // of cell 0
  std::fill_n(starts, layout.cells + 1, 0u);
  for_each_in_tile(pool, pattern, 0, layout.outputs(), [&](std::int64_t o, std::int64_t t) {
    std::uint32_t* const cell = next + layout.cell.output[o] + layout.cell.tap[t];
    const std::int64_t* const input = layout.cell.input.data();
    return [cell, input](std::int64_t, std::int64_t i) { ++cell[input[i]]; };
  });
  std::uint32_t begin = 0;
  for (std::int64_t c = 0; c < layout.cells; ++c) begin += std::exchange(next[c], begin);
  with_dtype(from, [&](auto element) {
    const auto* const v = static_cast<const decltype(element)*>(values);
    for_each_in_tile(pool, pattern, 0, layout.outputs(), [&](std::int64_t o, std::int64_t t) {
      std::uint32_t* const cell = next + layout.cell.output[o] + layout.cell.tap[t];
      const std::int64_t* const input = layout.cell.input.data();
      const std::int64_t at = layout.offset.output[o] + layout.offset.tap[t];
      const std::int64_t* const offset = layout.offset.input.data();
      return [=](std::int64_t k, std::int64_t i) {
        entries[cell[input[i]]++] = {static_cast<float>(v[k]),
                                     static_cast<std::uint32_t>(at + offset[i])};
      };
    });
  });
}

void gather_sparse_gradient(ThreadPool& pool, const float* dw, const WeightLayout& layout,
                            const SparsePattern& pattern, std::int64_t first_output, void* gradient,
                            Dtype to, bool accumulate) {
  with_dtype(to, [&](auto out) {
    using To = decltype(out);
    auto* g = static_cast<To*>(gradient);
    if (accumulate)
      for_each_place(pool, pattern, first_output, layout, [g, dw](std::int64_t k, std::int64_t at) {
        g[k] = To(static_cast<float>(g[k]) + dw[at]);
      });
    else
      for_each_place(pool, pattern, first_output, layout,
                     [g, dw](std::int64_t k, std::int64_t at) { g[k] = To(dw[at]); });
  });
}

}  // namespace memfloor::cpu

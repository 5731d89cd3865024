#include "backends/cpu/sparse_weights.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "backends/cpu/convert.h"
#include "backends/cpu/slices.h"

namespace memfloor::cpu {
namespace {

// Layouts interleave up to 16 outputs in a cache line: they go to one thread.
constexpr std::int64_t kBlock = 16;
constexpr std::int64_t kMostSlices = 64;
constexpr std::int64_t kZeroPiece = 32768;  // bytes

// Calls visit(k, offset in the layout) for the non-zeros of as many rows as the layout has.
template <class Visit>
void for_each_in_tile(ThreadPool& pool, const SparsePattern& pattern, std::int64_t first,
                      const WeightLayout& layout, Visit&& visit) {
  const std::int64_t rows = layout.outputs();
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
        const std::int64_t at = layout.output[o] + layout.tap[t];
        const std::int64_t* input = layout.input.data() - column;
        for_each_in_columns(pattern, first + o, column, column + pattern.inputs, k,
                            [visit, at, input](std::int64_t value, std::int64_t c) {
                              visit(value, at + input[c]);
                            });
      }
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
      for_each_in_tile(pool, pattern, first_output, layout,
                       [v, to](std::int64_t k, std::int64_t at) { to[at] = converted<To>(v[k]); });
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
      for_each_in_tile(pool, pattern, first_output, layout,
                       [g, dw](std::int64_t k, std::int64_t at) {
                         g[k] = To(static_cast<float>(g[k]) + dw[at]);
                       });
    else
      for_each_in_tile(pool, pattern, first_output, layout,
                       [g, dw](std::int64_t k, std::int64_t at) { g[k] = To(dw[at]); });
  });
}

}  // namespace memfloor::cpu

#include "backends/cpu/sparse_weights.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/slices.h"

namespace memfloor::cpu {
namespace {

// Layouts interleave up to 16 output channels in a cache line: they go to one thread.
constexpr std::int64_t kBlock = 16;
constexpr std::int64_t kZeroPiece = 32768;  // bytes

template <class Body>
void blocks_of_outputs(ThreadPool& pool, std::int64_t outputs, Body&& body) {
  pool.parallel_for(ceil_div(outputs, kBlock), [&](std::int64_t block, int) {
    body(block * kBlock, std::min(outputs, (block + 1) * kBlock));
  });
}

}  // namespace

void unpack_sparse_weights(ThreadPool& pool, const void* values, Dtype from,
                           const SparsePattern& pattern, const WeightLayout& layout, void* packed) {
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
      blocks_of_outputs(pool, pattern.outputs, [&](std::int64_t first, std::int64_t last) {
        for_each_non_zero(pattern, first, last,
                          [&](std::int64_t k, std::int64_t o, std::int64_t t, std::int64_t i) {
                            to[layout.offset(o, t, i)] = To(static_cast<float>(v[k]));
                          });
      });
    });
  });
}

void gather_sparse_gradient(ThreadPool& pool, const float* dw, const WeightLayout& layout,
                            const SparsePattern& pattern, void* gradient, Dtype to,
                            bool accumulate) {
  with_dtype(to, [&](auto out) {
    using To = decltype(out);
    auto* g = static_cast<To*>(gradient);
    blocks_of_outputs(pool, pattern.outputs, [&](std::int64_t first, std::int64_t last) {
      for_each_non_zero(pattern, first, last,
                        [&](std::int64_t k, std::int64_t o, std::int64_t t, std::int64_t i) {
                          const float value = dw[layout.offset(o, t, i)];
                          g[k] = To(accumulate ? static_cast<float>(g[k]) + value : value);
                        });
    });
  });
}

}  // namespace memfloor::cpu

// Where the non-zeros of a compressed weight are. Its values are stored without gaps, in canonical
// order (see weight_layout.h); a row is an output channel, a column is a tap and an input channel.
#pragma once

#include <cstdint>

#include "core/bits.h"

namespace memfloor {

enum class SparseIndex : std::uint8_t {
  bitmap,  // one bit a position
  csr16,   // columns in 16 bits, and where every row starts
  csr32,   // columns in 32 bits
};

struct SparsePattern {
  SparseIndex index = SparseIndex::bitmap;
  std::int64_t outputs = 0, taps = 0, inputs = 0;
  const void* positions = nullptr;            // the weight's own: words of bits, or columns
  const std::uint32_t* row_starts = nullptr;  // CSR: outputs + 1, counted from anywhere
};

template <class Column, class Visit>
void for_each_in_csr(const SparsePattern& p, std::int64_t first, std::int64_t last, Visit&& visit) {
  const auto* columns = static_cast<const Column*>(p.positions);
  std::int64_t k = p.row_starts[first] - p.row_starts[0];
  for (std::int64_t o = first; o < last; ++o) {
    const std::int64_t end = p.row_starts[o + 1] - p.row_starts[0];
    for (std::int64_t t = 0; t < p.taps; ++t)
      for (; k < end && columns[k] < (t + 1) * p.inputs; ++k)
        visit(k, o, t, columns[k] - t * p.inputs);
  }
}

/// Calls visit(k, output, tap, input) for the non-zeros of rows [first, last) in canonical order;
/// k is the place among the weight's values.
template <class Visit>
void for_each_non_zero(const SparsePattern& p, std::int64_t first, std::int64_t last,
                       Visit&& visit) {
  if (p.index == SparseIndex::csr16) return for_each_in_csr<std::uint16_t>(p, first, last, visit);
  if (p.index == SparseIndex::csr32) return for_each_in_csr<std::uint32_t>(p, first, last, visit);
  const auto* set = static_cast<const std::uint64_t*>(p.positions);
  std::int64_t k = bits::count(set, 0, first * p.taps * p.inputs);
  for (std::int64_t o = first; o < last; ++o)
    for (std::int64_t t = 0; t < p.taps; ++t) {
      const std::int64_t begin = (o * p.taps + t) * p.inputs;
      bits::for_each(set, begin, begin + p.inputs,
                     [&](std::int64_t position) { visit(k++, o, t, position - begin); });
    }
}

/// Calls visit(k, position) for all non-zeros; positions count in canonical order.
template <class Visit>
void for_each_non_zero(const SparsePattern& p, Visit&& visit) {
  for_each_non_zero(p, 0, p.outputs,
                    [&](std::int64_t k, std::int64_t o, std::int64_t t, std::int64_t i) {
                      visit(k, (o * p.taps + t) * p.inputs + i);
                    });
}

}  // namespace memfloor

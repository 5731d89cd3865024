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

/// How many non-zeros rows [first, last) have.
inline std::int64_t values_in(const SparsePattern& p, std::int64_t first, std::int64_t last) {
  if (p.index != SparseIndex::bitmap) return p.row_starts[last] - p.row_starts[first];
  const std::int64_t columns = p.taps * p.inputs;
  return bits::count(static_cast<const std::uint64_t*>(p.positions), first * columns,
                     last * columns);
}

/// Calls visit(k, column) for a row's non-zeros in columns [first, last), in rising order. `k`, the
/// place of the first among the weight's values, moves past them.
template <class Visit>
void for_each_in_columns(const SparsePattern& p, std::int64_t output, std::int64_t first,
                         std::int64_t last, std::int64_t& k, Visit&& visit) {
  std::int64_t next = k;
  if (p.index == SparseIndex::bitmap) {
    // Without a nested lambda: compilers would keep `next` in memory.
    const auto* set = static_cast<const std::uint64_t*>(p.positions);
    const std::int64_t row = output * p.taps * p.inputs, begin = row + first, end = row + last;
    for (std::int64_t at = begin / 64 * 64; at < end; at += 64)
      for (std::uint64_t word = bits::word_at(set, at, begin, end); word != 0; word &= word - 1)
        visit(next++, at - row + std::countr_zero(word));
  } else {
    const std::int64_t end = p.row_starts[output + 1] - p.row_starts[0];
    const auto walk = [&](const auto* columns) {
      for (; next < end && columns[next] < last; ++next)
        visit(next, static_cast<std::int64_t>(columns[next]));
    };
    if (p.index == SparseIndex::csr16)
      walk(static_cast<const std::uint16_t*>(p.positions));
    else
      walk(static_cast<const std::uint32_t*>(p.positions));
  }
  k = next;
}

/// Calls visit(k, output, tap, input) for the non-zeros of rows [first, last) in canonical order;
/// k is the place among the weight's values, the first's is given.
template <class Visit>
void for_each_non_zero(const SparsePattern& p, std::int64_t first, std::int64_t last,
                       std::int64_t k, Visit&& visit) {
  for (std::int64_t o = first; o < last; ++o)
    for (std::int64_t t = 0; t < p.taps; ++t) {
      const std::int64_t begin = t * p.inputs;
      for_each_in_columns(
          p, o, begin, begin + p.inputs, k,
          [&](std::int64_t at, std::int64_t column) { visit(at, o, t, column - begin); });
    }
}

/// Calls visit(k, position) for all non-zeros; positions count in canonical order.
template <class Visit>
void for_each_non_zero(const SparsePattern& p, Visit&& visit) {
  for_each_non_zero(p, 0, p.outputs, 0,
                    [&](std::int64_t k, std::int64_t o, std::int64_t t, std::int64_t i) {
                      visit(k, (o * p.taps + t) * p.inputs + i);
                    });
}

}  // namespace memfloor

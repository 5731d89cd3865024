#include "backends/cpu/matrix_rows.h"

#include <algorithm>

#include "backends/cpu/convert.h"
#include "backends/cpu/slices.h"
#include "core/error.h"

namespace memfloor::cpu {
namespace {

constexpr std::int64_t kPiece = 16;    // positions that are gathered by one thread
constexpr std::int64_t kSlice = 64;    // positions whose rows' sums are one thread's, about
constexpr std::int64_t kColumns = 64;  // of a sum in registers

void check_rows(const std::int32_t* rows, std::int64_t count, std::int64_t outputs) {
  for (std::int64_t p = 0; p < count; ++p)
    MEMFLOOR_CHECK(rows[p] >= 0 && rows[p] < outputs, "position ", p, " names row ", rows[p],
                   " of a matrix of ", outputs);
}

template <class Body>
void pieces_of(ThreadPool& pool, std::int64_t count, Body&& body) {
  pool.parallel_for(ceil_div(count, kPiece), [&](std::int64_t piece, int) {
    for (std::int64_t p = piece * kPiece; p < std::min(count, (piece + 1) * kPiece); ++p) body(p);
  });
}

// Where the values of every row begin, in `starts` (outputs + 1).
void find_values(const SparsePattern& pattern, std::uint32_t* starts) {
  std::int64_t k = 0;
  for (std::int64_t o = 0; o < pattern.outputs; ++o) {
    starts[o] = static_cast<std::uint32_t>(k);
    k += values_in(pattern, o, o + 1);
  }
  starts[pattern.outputs] = static_cast<std::uint32_t>(k);
}

// The positions that name row r are order[starts[r]] to order[starts[r + 1] - 1], in rising order.
struct PositionsOfRows {
  std::uint32_t* starts;
  std::uint32_t* order;

  // A counting sort. `scratch`: outputs + 1 + count numbers.
  PositionsOfRows(const std::int32_t* rows, std::int64_t count, std::int64_t outputs, void* scratch)
      : starts(static_cast<std::uint32_t*>(scratch)), order(starts + outputs + 1) {
    std::fill_n(starts, outputs + 1, 0u);
    for (std::int64_t p = 0; p < count; ++p) ++starts[rows[p]];
    for (std::int64_t r = 1; r <= outputs; ++r) starts[r] += starts[r - 1];
    for (std::int64_t p = count - 1; p >= 0; --p)
      order[--starts[rows[p]]] = static_cast<std::uint32_t>(p);
  }

  // Calls body(row) for the rows that are named. A slice's rows begin in the same stretch of
  // `order`: frequent rows have slices to themselves.
  template <class Body>
  void for_each_named_row(ThreadPool& pool, std::int64_t outputs, Body&& body) const {
    pool.parallel_for(ceil_div(starts[outputs], kSlice), [&](std::int64_t slice, int) {
      const auto first = std::lower_bound(starts, starts + outputs, slice * kSlice) - starts;
      for (auto r = first; r < outputs && starts[r] < (slice + 1) * kSlice; ++r)
        if (starts[r] < starts[r + 1]) body(r);
    });
  }

  // sums = of columns [first, last) of the rows of x (positions, inputs) that belong to row r.
  template <class T>
  void sum(const T* x, std::int64_t inputs, std::int64_t r, std::int64_t first, std::int64_t last,
           float* sums) const {
    std::fill_n(sums, last - first, 0.0f);
    for (std::uint32_t j = starts[r]; j < starts[r + 1]; ++j) {
      const T* from = x + order[j] * inputs + first;
      for (std::int64_t c = 0; c < last - first; ++c) sums[c] += static_cast<float>(from[c]);
    }
  }
};

// Calls body(row, first column, last, sums of these columns) for the rows that are named.
template <class T, class Body>
void for_each_sum(ThreadPool& pool, const T* x, const PositionsOfRows& positions,
                  std::int64_t outputs, std::int64_t inputs, Body&& body) {
  positions.for_each_named_row(pool, outputs, [&](std::int64_t r) {
    float sums[kColumns];
    for (std::int64_t c = 0; c < inputs; c += kColumns) {
      const std::int64_t last = std::min(inputs, c + kColumns);
      positions.sum(x, inputs, r, c, last, sums);
      body(r, c, last, sums);
    }
  });
}

}  // namespace

void gather_rows(ThreadPool& pool, const void* matrix, Dtype from, std::int64_t outputs,
                 std::int64_t inputs, const std::int32_t* rows, std::int64_t count, Dtype to,
                 void* y) {
  check_rows(rows, count, outputs);
  with_dtype(from, [&](auto in) {
    with_dtype(to, [&](auto out) {
      using From = decltype(in);
      using To = decltype(out);
      pieces_of(pool, count, [&](std::int64_t p) {
        const From* w = static_cast<const From*>(matrix) + rows[p] * inputs;
        To* into = static_cast<To*>(y) + p * inputs;
        for (std::int64_t i = 0; i < inputs; ++i) into[i] = converted<To>(w[i]);
      });
    });
  });
}

void gather_sparse_rows(ThreadPool& pool, const void* values, Dtype from,
                        const SparsePattern& pattern, const std::int32_t* rows, std::int64_t count,
                        Dtype to, void* y, void* scratch) {
  check_rows(rows, count, pattern.outputs);
  auto* starts = static_cast<std::uint32_t*>(scratch);
  find_values(pattern, starts);
  with_dtype(from, [&](auto in) {
    with_dtype(to, [&](auto out) {
      using From = decltype(in);
      using To = decltype(out);
      const auto* v = static_cast<const From*>(values);
      pieces_of(pool, count, [&](std::int64_t p) {
        To* into = static_cast<To*>(y) + p * pattern.inputs;
        std::fill_n(into, pattern.inputs, To(0.0f));
        std::int64_t k = starts[rows[p]];
        for_each_in_columns(
            pattern, rows[p], 0, pattern.inputs, k,
            [&](std::int64_t at, std::int64_t column) { into[column] = converted<To>(v[at]); });
      });
    });
  });
}

void add_rows(ThreadPool& pool, const void* x, Dtype from, const std::int32_t* rows,
              std::int64_t count, void* matrix, Dtype to, std::int64_t outputs, std::int64_t inputs,
              void* scratch) {
  check_rows(rows, count, outputs);
  const PositionsOfRows positions(rows, count, outputs, scratch);
  with_dtype(from, [&](auto in) {
    with_dtype(to, [&](auto out) {
      using To = decltype(out);
      for_each_sum(pool, static_cast<const decltype(in)*>(x), positions, outputs, inputs,
                   [&](std::int64_t r, std::int64_t first, std::int64_t last, const float* sums) {
                     To* g = static_cast<To*>(matrix) + r * inputs + first;
                     for (std::int64_t c = 0; c < last - first; ++c)
                       g[c] = To(static_cast<float>(g[c]) + sums[c]);
                   });
    });
  });
}

void add_sparse_rows(ThreadPool& pool, const void* x, Dtype from, const std::int32_t* rows,
                     std::int64_t count, void* values, Dtype to, const SparsePattern& pattern,
                     void* scratch) {
  check_rows(rows, count, pattern.outputs);
  auto* starts = static_cast<std::uint32_t*>(scratch);
  find_values(pattern, starts);
  const PositionsOfRows positions(rows, count, pattern.outputs, starts + pattern.outputs + 1);
  with_dtype(from, [&](auto in) {
    with_dtype(to, [&](auto out) {
      using To = decltype(out);
      auto* g = static_cast<To*>(values);
      for_each_sum(pool, static_cast<const decltype(in)*>(x), positions, pattern.outputs,
                   pattern.inputs,
                   [&](std::int64_t r, std::int64_t first, std::int64_t last, const float* sums) {
                     // The row's columns come in order, so its first moves with them.
                     std::int64_t k = starts[r];
                     for_each_in_columns(
                         pattern, r, first, last, k, [&](std::int64_t at, std::int64_t column) {
                           g[at] = To(static_cast<float>(g[at]) + sums[column - first]);
                         });
                     starts[r] = static_cast<std::uint32_t>(k);
                   });
    });
  });
}

}  // namespace memfloor::cpu

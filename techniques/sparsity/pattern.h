// The pattern of all compressed weights in one index format. Values, gradients and optimizer state
// are slabs of K elements in which the layers lie one behind the other; where each begins moves
// with the pattern, how much memory the pattern takes does not.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backends/sparse_pattern.h"
#include "core/ledger.h"
#include "engine/parameter_store.h"

namespace memfloor {

/// A compressed weight; a row is an output, a column is a tap and an input.
struct CompressedLayer {
  ParameterStore::Handle handle = 0;
  std::int64_t outputs = 0, taps = 0, inputs = 0;
  std::string name;

  std::int64_t columns() const { return taps * inputs; }
  std::int64_t elements() const { return outputs * columns(); }
};

/// Where a pattern's arrays are: on the device, or the host's copies of them.
struct PatternArrays {
  void* positions = nullptr;
  std::uint32_t* row_starts = nullptr;  // null for formats without
};

class Pattern {
 public:
  virtual ~Pattern() = default;

  /// Takes the arrays from the ledger, as `sparse_index`. Throws InputError for a layer that the
  /// format cannot hold.
  virtual void allocate(Ledger& ledger, const std::vector<CompressedLayer>& layers,
                        std::int64_t non_zeros) = 0;
  virtual PatternArrays arrays() const = 0;
  /// The arrays by name: what a snapshot holds, positions first.
  virtual std::vector<StateTensor> state() const = 0;

  /// Layer `l`, whose values begin at `start` of the slab.
  virtual SparsePattern layer(const PatternArrays& arrays, std::size_t l,
                              std::int64_t start) const = 0;
  /// Makes the bits (see core/bits.h) of a layer's positions its pattern; host arrays, layers in
  /// order.
  virtual void write(const PatternArrays& host, std::size_t l, std::int64_t start,
                     const std::uint64_t* bits) const = 0;
  /// Non-zeros of a layer; -1 where the arrays, read from a file, contradict themselves.
  virtual std::int64_t non_zeros(const PatternArrays& host, std::size_t l,
                                 std::int64_t start) const = 0;
};

}  // namespace memfloor

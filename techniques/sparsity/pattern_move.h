// The steps of a pattern's move, on host memory: which values go, which positions come, and how the
// slab's arrays follow in place. Patterns are sets of bits (core/bits.h), a set a layer.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/sparse_pattern.h"
#include "core/dtype.h"
#include "core/philox.h"

namespace memfloor {

/// How many of `count` values have a magnitude below `threshold`.
std::int64_t count_below(const void* values, Dtype dtype, std::int64_t count, float threshold);

/// The `drop` smallest magnitudes of some values: those below `key`, and the first `ties` equal to
/// it. Magnitudes compare by their FP32 bits, so that NaN is the largest.
struct SmallestMagnitudes {
  std::uint32_t key = 0;
  std::int64_t ties = 0;

  /// To be asked about every value once, in order.
  bool take(std::uint32_t magnitude) { return magnitude < key || (magnitude == key && ties-- > 0); }
};
SmallestMagnitudes smallest_magnitudes(const void* values, Dtype dtype, std::int64_t count,
                                       std::int64_t drop);
/// FP32 bits of |values[k]|.
std::uint32_t magnitude_bits(const void* values, Dtype dtype, std::int64_t k);

/// Adds to `drawn` exactly `count` of the positions [0, elements) that are not in `taken`, every
/// such choice equally likely: selection sampling (Knuth, The Art of Computer Programming 2, 3.4.2,
/// algorithm S), with random words by counter (step, layer, position). `free` positions are not
/// taken.
void draw_positions(const Philox& random, std::uint32_t step, std::uint32_t layer,
                    const std::uint64_t* taken, std::int64_t elements, std::int64_t free,
                    std::int64_t count, std::uint64_t* drawn);

/// A layer on its move. `next` and the scratch `old` of both functions hold a bit a position.
struct MovingLayer {
  SparsePattern pattern;   // as it was
  std::int64_t start = 0;  // of its old values in the slab
  std::int64_t count = 0;  // of its old values
  std::uint64_t* next = nullptr;

  std::int64_t elements() const { return pattern.outputs * pattern.taps * pattern.inputs; }
};

/// Fills `layer.next`: without the `drop` smallest of the layer's `weights`, with `grow` positions
/// drawn among those that are zero now.
void choose_next(const MovingLayer& layer, const void* weights, Dtype dtype, std::int64_t drop,
                 std::int64_t grow, const Philox& random, std::uint32_t step,
                 std::uint32_t layer_number, std::uint64_t* old);

/// An array of the slab, of 2 or 4 bytes an element, follows all layers to their next patterns, in
/// place: what stays first moves to the front, then, from the end, to where it belongs; what has
/// grown is zero.
void follow(void* array, std::int64_t element_bytes, const std::vector<MovingLayer>& layers,
            std::uint64_t* old);

}  // namespace memfloor

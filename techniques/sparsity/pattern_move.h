// The steps of a pattern's move, on host memory: which values go, which positions come, and how the
// slab's arrays follow in place. Patterns are sets of bits (core/bits.h), a set a layer.
#pragma once

#include <cstdint>
#include <vector>

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

}  // namespace memfloor

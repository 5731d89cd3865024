// Segments of whole blocks.
#pragma once

#include <cstdint>

#include "techniques/checkpointing/cut.h"

namespace memfloor {

/// Every block is a segment.
CutRule every_block();

/// `count` segments of whole blocks, chosen so that the largest saves as few elements as can be;
/// where a stretch has fewer blocks, one each.
CutRule balanced_segments(std::int64_t count);

/// About sqrt(n) segments of n blocks, balanced like the above.
CutRule sqrt_segments();

/// Two segments, each cut in two again, down to single blocks.
CutRule repeated_halves();

std::int64_t count_blocks(const Chain& chain);

/// What the units save for backward, in elements.
std::int64_t saved_elements(const Chain& chain, UnitRange units);

}  // namespace memfloor

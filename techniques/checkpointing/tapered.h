// Long segments where activations are large, short ones behind.
#pragma once

#include <cstdint>

#include "techniques/checkpointing/cut.h"

namespace memfloor {

/// `count` balanced segments of whole blocks (blocks.h), up to the last block that saves more than
/// half of what the largest saves; behind it every unit is a segment. In a convolutional network
/// each block costs about the same to run again, but the early ones, of high resolution, save most:
/// those are worth it, and of the others only what is cheap.
CutRule tapered_segments(std::int64_t count);

}  // namespace memfloor

// One bit a position: cheapest where more than one in 16 (against csr16) is not zero.
#pragma once

#include "techniques/sparsity/pattern.h"

namespace memfloor {

/// Every layer begins a 64-bit word: elements / 8 bytes for layers of multiples of 64.
std::unique_ptr<Pattern> make_bitmap_pattern();

}  // namespace memfloor

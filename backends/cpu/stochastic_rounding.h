// Stochastic rounding of FP32 values to 16-bit formats; see Rounding (backends/tensor_ops.h).
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace memfloor::cpu {

/// Elements whose random numbers are made together.
inline constexpr std::int64_t kRoundingBlock = 128;

/// What an array's random numbers are functions of, beside the element.
struct RoundingDraws {
  std::uint32_t seed = 0, update = 0, array = 0, stream = 0;
};

/// to[i] = a neighbour of from[i] in `dtype`, a 16-bit format, for elements first + i of an array;
/// `first` is a multiple of kRoundingBlock.
///
/// Sixteen random bits R decide: up where R / 2^16 + (distance from the lower neighbour, in units
/// of the gap) reaches 1. That is exact, but for FP16 results below 2^-14, where the distance is
/// cut to 16 bits. Element e takes them from the Philox counter (update, e / 128 * 16 + e % 16,
/// array, stream): of word e % 128 / 32 the lower half where e / 16 is even, else the upper half,
/// an order in which neighbours lie in one vector.
void round_stochastically(const RoundingDraws& draws, const float* from, Dtype dtype, void* to,
                          std::int64_t first, std::int64_t elements);

}  // namespace memfloor::cpu

#include "core/philox.h"

#include <cmath>
#include <numbers>

#include "core/error.h"

namespace memfloor {

std::array<float, 2> normal_pair(std::uint32_t word0, std::uint32_t word1) {
  const double u = (word0 + 0.5) * 0x1p-32;  // never 0, so the logarithm is finite
  const double angle = 2 * std::numbers::pi * (word1 * 0x1p-32);
  const double radius = std::sqrt(-2 * std::log(u));
  return {static_cast<float>(radius * std::cos(angle)),
          static_cast<float>(radius * std::sin(angle))};
}

Permutation::Permutation(std::uint32_t seed, std::uint32_t epoch, std::int64_t size)
    : philox_(seed, Purpose::shuffle), epoch_(epoch), size_(size), half_bits_(1) {
  MEMFLOOR_CHECK(size > 0 && size <= (std::int64_t{1} << 40), "cannot shuffle ", size, " items");
  while ((std::int64_t{1} << (2 * half_bits_)) < size) ++half_bits_;
}

std::int64_t Permutation::operator()(std::int64_t index) const {
  const std::uint32_t mask = (1u << half_bits_) - 1;
  constexpr std::uint32_t kRounds = 6;
  do {
    auto left = static_cast<std::uint32_t>(index >> half_bits_);
    auto right = static_cast<std::uint32_t>(index) & mask;
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      const std::uint32_t mixed = left ^ (philox_({epoch_, round, right, 0})[0] & mask);
      left = right, right = mixed;
    }
    index = (static_cast<std::int64_t>(left) << half_bits_) | right;
  } while (index >= size_);
  return index;
}

}  // namespace memfloor

// How work is cut. Slices depend on shapes only, never on the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

namespace memfloor::cpu {

/// The largest divisor of `n` that is not above `cap` (at least 1).
inline std::int64_t largest_divisor(std::int64_t n, std::int64_t cap) {
  for (std::int64_t d = std::min(n, cap); d > 1; --d)
    if (n % d == 0) return d;
  return 1;
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace memfloor::cpu

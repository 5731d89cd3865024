// Softmax of one row, in FP32 whatever it is stored as.
#pragma once

#include <limits>

#include "backends/cpu/lane_math.h"
#include "backends/cpu/row_lanes.h"

namespace memfloor::cpu {

inline constexpr float kNothing = -std::numeric_limits<float>::infinity();

template <class T>
float largest_of(const T* x, std::int64_t width) {
  Lanes most = broadcast(kNothing);
  for_lanes(width, [&](std::int64_t i, auto w) { most = max(most, load(x + i, w, kNothing)); });
  return largest(most);
}

/// In place. The exponentials are computed twice: stored between, they would be rounded twice.
template <class T>
void softmax_row(T* x, std::int64_t width) {
  const Lanes most = broadcast(largest_of(x, width));
  Lanes sums{};
  for_lanes(width,
            [&](std::int64_t i, auto w) { sums += exponential(load(x + i, w, kNothing) - most); });
  const float inverse = 1 / sum(sums);
  for_lanes(width, [&](std::int64_t i, auto w) {
    store(x + i, exponential(load(x + i, w) - most) * inverse, w);
  });
}

}  // namespace memfloor::cpu

// Sums, maxima and exponentials of lanes.
#pragma once

#include <algorithm>

#include "backends/cpu/lanes.h"

namespace memfloor::cpu {

inline float sum(Part v) {
  float lanes[kPart];
  store_part(lanes, v);
  for (int n = kPart / 2; n > 0; n /= 2)
    for (int i = 0; i < n; ++i) lanes[i] += lanes[i + n];
  return lanes[0];
}
template <class P>
float sum(Pair<P> v) {
  return sum(v.low + v.high);
}

inline float largest(Lanes v) {
  float most = v[0];
  for (int i = 1; i < kLanes; ++i) most = std::max(most, v[i]);
  return most;
}

/// e^x within two units of the last place for -87.3 <= x <= 88, else 0 below and nothing of use
/// above; NaN stays NaN. (The polynomial is that of Moshier's Cephes.)
inline Part exponential(Part x) {
  constexpr float kLeast = -87.3f;
  constexpr float kRound = 0x1.8p23f;  // added, it leaves an integer in the last bits
  const auto underflows = x < kLeast;
  x = underflows ? Part{} + kLeast : x;
  const Part shifted = x * 1.44269504f + kRound;
  const Part n = shifted - kRound;
  const Part r = x - n * 0.693359375f + n * 2.12194440e-4f;
  Part p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const Part power = reinterpret_cast<Part>((reinterpret_cast<PartBits>(shifted) + 127u) << 23);
  return underflows ? Part{} : p * power;
}
template <class P>
Pair<P> exponential(Pair<P> v) {
  return {exponential(v.low), exponential(v.high)};
}

}  // namespace memfloor::cpu

// Sums, maxima and exponentials of lanes.
#pragma once

#include <algorithm>

#include "backends/cpu/lanes.h"
#if defined(__AVX__)
#include <immintrin.h>
#endif

namespace memfloor::cpu {

using Quad = float __attribute__((vector_size(16)));

/// Four partial sums.
inline Quad quad(Part v) {
#if defined(__AVX512F__)
  const auto wide = reinterpret_cast<__m512>(v);
  const auto high = reinterpret_cast<__m256>(_mm512_extractf64x4_pd(_mm512_castps_pd(wide), 1));
  const __m256 half = _mm512_castps512_ps256(wide) + high;
  return _mm256_castps256_ps128(half) + _mm256_extractf128_ps(half, 1);
#elif defined(__AVX__)
  const auto wide = reinterpret_cast<__m256>(v);
  return _mm256_castps256_ps128(wide) + _mm256_extractf128_ps(wide, 1);
#else
  return v;
#endif
}
template <class P>
Quad quad(Pair<P> v) {
  return quad(v.low + v.high);
}

inline float sum(Lanes v) {
  const Quad q = quad(v);
  return (q[0] + q[2]) + (q[1] + q[3]);
}
/// Of each of four: the same sums, side by side.
inline Quad sums(Lanes a, Lanes b, Lanes c, Lanes d) {
  const Quad qa = quad(a), qb = quad(b), qc = quad(c), qd = quad(d);
  const Quad ab =
      __builtin_shufflevector(qa, qb, 0, 4, 1, 5) + __builtin_shufflevector(qa, qb, 2, 6, 3, 7);
  const Quad cd =
      __builtin_shufflevector(qc, qd, 0, 4, 1, 5) + __builtin_shufflevector(qc, qd, 2, 6, 3, 7);
  return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
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

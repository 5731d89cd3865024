// Sixteen FP32 values at a time, whatever they are stored as. GCC and Clang vector extensions: one
// AVX-512 register, two AVX2 registers, or plain loops, without a line of difference.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/dtype.h"
#if defined(__AVX512F__) || defined(__F16C__)
#include <immintrin.h>
#endif

namespace memfloor::cpu {

inline constexpr int kLanes = 16;
using Lanes = float __attribute__((vector_size(64)));
using LaneBits = std::uint32_t __attribute__((vector_size(64)));
using LaneHalves = std::uint16_t __attribute__((vector_size(32)));

inline Lanes broadcast(float value) { return value - Lanes{}; }

inline Lanes load(const float* from) {
  Lanes v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
inline void store(float* to, Lanes v) { std::memcpy(to, &v, sizeof v); }

inline Lanes load(const Bf16* from) {
  LaneHalves halves;
  std::memcpy(&halves, static_cast<const void*>(from), sizeof halves);
  return reinterpret_cast<Lanes>(__builtin_convertvector(halves, LaneBits) << 16);
}
#if defined(__AVX512BF16__)
// Rounds to nearest even; the instruction takes values below 2^-126 as zero.
inline void store(Bf16* to, Lanes v) {
  const __m256bh halves = _mm512_cvtneps_pbh(reinterpret_cast<__m512>(v));
  std::memcpy(static_cast<void*>(to), &halves, sizeof halves);
}
#else
// Rounds to nearest even like Bf16(float); infinities survive, NaN stays NaN.
inline void store(Bf16* to, Lanes v) {
  const LaneBits u = reinterpret_cast<LaneBits>(v);
  const LaneBits rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const LaneBits quiet_nan = (u >> 16) | 0x40u;
  const LaneHalves halves = __builtin_convertvector(v == v ? rounded : quiet_nan, LaneHalves);
  std::memcpy(static_cast<void*>(to), &halves, sizeof halves);
}
#endif

#if defined(__AVX512F__)
inline Lanes load(const F16* from) {
  return reinterpret_cast<Lanes>(
      _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
}
inline void store(F16* to, Lanes v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_cvtps_ph(reinterpret_cast<__m512>(v), _MM_FROUND_TO_NEAREST_INT));
}
#elif defined(__F16C__)
inline Lanes load(const F16* from) {
  const auto* halves = reinterpret_cast<const __m128i*>(from);
  const __m256 values[2] = {_mm256_cvtph_ps(_mm_loadu_si128(halves)),
                            _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
  Lanes v;
  std::memcpy(&v, values, sizeof v);
  return v;
}
inline void store(F16* to, Lanes v) {
  __m256 values[2];
  std::memcpy(values, &v, sizeof v);
  auto* halves = reinterpret_cast<__m128i*>(to);
  for (int i = 0; i < 2; ++i)
    _mm_storeu_si128(halves + i, _mm256_cvtps_ph(values[i], _MM_FROUND_TO_NEAREST_INT));
}
#else
inline Lanes load(const F16* from) {
  Lanes v;
  for (int i = 0; i < kLanes; ++i) v[i] = static_cast<float>(from[i]);
  return v;
}
inline void store(F16* to, Lanes v) {
  for (int i = 0; i < kLanes; ++i) to[i] = F16(v[i]);
}
#endif

/// Walks channels in groups whose constants stay in registers: whole cache lines where there are
/// enough channels. Calls group(first, std::integral_constant<int, G>) for G * kLanes channels at a
/// time, then single(channel) for what is left.
template <class Group, class Single>
void for_channel_groups(std::int64_t channels, Group&& group, Single&& single) {
  std::int64_t c = 0;
  for (; c + 4 * kLanes <= channels; c += 4 * kLanes) group(c, std::integral_constant<int, 4>{});
  for (; c + 2 * kLanes <= channels; c += 2 * kLanes) group(c, std::integral_constant<int, 2>{});
  for (; c + kLanes <= channels; c += kLanes) group(c, std::integral_constant<int, 1>{});
  for (; c < channels; ++c) single(c);
}

inline Lanes max(Lanes a, Lanes b) { return a > b ? a : b; }

}  // namespace memfloor::cpu

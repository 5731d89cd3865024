// Sixteen FP32 values at a time, whatever they are stored as. A part is one register, as GCC and
// Clang vector extensions; wider vectors than the machine has would be taken apart element by
// element, so sixteen lanes are pairs of parts where a register holds fewer.
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
#if defined(__AVX512F__)
inline constexpr int kPart = 16;
#elif defined(__AVX__)
inline constexpr int kPart = 8;
#else
inline constexpr int kPart = 4;
#endif
using Part = float __attribute__((vector_size(4 * kPart)));
using PartBits = std::uint32_t __attribute__((vector_size(4 * kPart)));
using PartHalves = std::uint16_t __attribute__((vector_size(2 * kPart)));

// ---- parts

template <class T>
T load_as(const void* from) {
  T v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

/// 16-bit patterns that stand in 32-bit lanes.
inline void store_halves(void* to, PartBits bits) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  const auto wide = reinterpret_cast<__m256i>(bits);  // GCC would go through memory
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(wide, wide), 0xd8);
  _mm_storeu_si128(static_cast<__m128i*>(to), _mm256_castsi256_si128(packed));
#else
  const PartHalves halves = __builtin_convertvector(bits, PartHalves);
  std::memcpy(to, &halves, sizeof halves);
#endif
}

inline void load_part(const float* from, Part& v) { v = load_as<Part>(from); }
inline void store_part(float* to, Part v) { std::memcpy(to, &v, sizeof v); }

inline void load_part(const Bf16* from, Part& v) {
  v = reinterpret_cast<Part>(__builtin_convertvector(load_as<PartHalves>(from), PartBits) << 16);
}
#if defined(__AVX512BF16__)
// Rounds to nearest even; the instruction takes values below 2^-126 as zero.
inline void store_part(Bf16* to, Part v) {
  const __m256bh halves = _mm512_cvtneps_pbh(reinterpret_cast<__m512>(v));
  std::memcpy(static_cast<void*>(to), &halves, sizeof halves);
}
#else
// Rounds to nearest even like Bf16(float); infinities survive, NaN stays NaN.
inline void store_part(Bf16* to, Part v) {
  const PartBits u = reinterpret_cast<PartBits>(v);
  const PartBits rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const PartBits quiet_nan = (u >> 16) | 0x40u;
  store_halves(to, v == v ? rounded : quiet_nan);
}
#endif

#if defined(__AVX512F__)
inline void load_part(const F16* from, Part& v) {
  v = reinterpret_cast<Part>(
      _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
}
inline void store_part(F16* to, Part v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_cvtps_ph(reinterpret_cast<__m512>(v), _MM_FROUND_TO_NEAREST_INT));
}
#elif defined(__F16C__)
inline void load_part(const F16* from, Part& v) {
  v = reinterpret_cast<Part>(
      _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}
inline void store_part(F16* to, Part v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm256_cvtps_ph(reinterpret_cast<__m256>(v), _MM_FROUND_TO_NEAREST_INT));
}
#else
inline void load_part(const F16* from, Part& v) {
  for (int i = 0; i < kPart; ++i) v[i] = static_cast<float>(from[i]);
}
inline void store_part(F16* to, Part v) {
  for (int i = 0; i < kPart; ++i) to[i] = F16(v[i]);
}
#endif

inline Part max(Part a, Part b) { return a > b ? a : b; }
/// a where y is positive, else zero.
inline Part where_positive(Part y, Part a) { return y > Part{} ? a : Part{}; }

// ---- sixteen lanes

template <class P>
struct Pair {
  P low, high;

  Pair& operator+=(Pair b) { return *this = *this + b; }
  float operator[](int i) const {
    constexpr int kHalf = sizeof(P) / sizeof(float);
    return i < kHalf ? low[i] : high[i - kHalf];
  }
  friend Pair operator+(Pair a, Pair b) { return {a.low + b.low, a.high + b.high}; }
  friend Pair operator-(Pair a, Pair b) { return {a.low - b.low, a.high - b.high}; }
  friend Pair operator*(Pair a, Pair b) { return {a.low * b.low, a.high * b.high}; }
  friend Pair operator*(Pair a, float b) { return {a.low * b, a.high * b}; }
  friend Pair operator-(float a, Pair b) { return {a - b.low, a - b.high}; }
  friend Pair max(Pair a, Pair b) { return {max(a.low, b.low), max(a.high, b.high)}; }
  friend Pair where_positive(Pair y, Pair a) {
    return {where_positive(y.low, a.low), where_positive(y.high, a.high)};
  }
};

template <class T, class P>
void load_part(const T* from, Pair<P>& v) {
  load_part(from, v.low);
  load_part(from + sizeof(P) / sizeof(float), v.high);
}
template <class T, class P>
void store_part(T* to, Pair<P> v) {
  store_part(to, v.low);
  store_part(to + sizeof(P) / sizeof(float), v.high);
}

using Lanes = std::conditional_t<kPart == 16, Part,
                                 std::conditional_t<kPart == 8, Pair<Part>, Pair<Pair<Part>>>>;

inline Lanes broadcast(float value) { return value - Lanes{}; }

template <class T>
Lanes load(const T* from) {
  Lanes v;
  load_part(from, v);
  return v;
}
template <class T>
void store(T* to, Lanes v) {
  store_part(to, v);
}

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

}  // namespace memfloor::cpu

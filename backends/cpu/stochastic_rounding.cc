#include "backends/cpu/stochastic_rounding.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/lanes.h"
#include "core/error.h"
#include "core/philox.h"

namespace memfloor::cpu {
namespace {

static_assert(kRoundingBlock == 8 * kLanes, "four words, two numbers each, a lane");

LaneBits bits_of(Lanes v) { return reinterpret_cast<LaneBits>(v); }
Lanes values_of(LaneBits bits) { return reinterpret_cast<Lanes>(bits); }
LaneBits broadcast_bits(std::uint32_t bits) { return bits - LaneBits{}; }

// What comes out of adding random bits below the last place and cutting them off, as 16-bit
// patterns in 32-bit lanes; infinities and NaN are not right.
LaneBits cut(Bf16, Lanes v, LaneBits random) { return (bits_of(v) + random) >> 16; }

LaneBits cut(F16, Lanes v, LaneBits random) {
  const LaneBits sign = (bits_of(v) >> 16) & 0x8000u;
  const LaneBits magnitude = bits_of(v) & 0x7fffffffu;
  // A normal result: the exponent's bias changes by 112, and 13 bits go.
  const LaneBits normal = (magnitude - (112u << 23) + (random >> 3)) >> 13;
  // A subnormal one is a multiple of 2^-24: in fixed point with 16 bits after the point.
  const Lanes small = values_of(magnitude < 0x38800000u ? magnitude : LaneBits{});
  using LaneIntegers = std::int32_t __attribute__((vector_size(64)));
  const auto fixed =
      reinterpret_cast<LaneBits>(__builtin_convertvector(small * 0x1p40f, LaneIntegers));
  const LaneBits subnormal = (fixed + random) >> 16;
  return sign | (magnitude < 0x38800000u ? subnormal : normal);
}

// The largest finite number, as an FP32 pattern.
template <class T>
constexpr std::uint32_t kLargest = std::is_same_v<T, F16> ? 0x477fe000u : 0x7f7f0000u;

template <class T>
LaneHalves rounded(Lanes v, LaneBits random) {
  // Up to the largest finite number the bits decide; beyond it, and for NaN, as to nearest.
  T nearest[kLanes];
  store(nearest, v);
  LaneHalves halves;
  std::memcpy(&halves, static_cast<const void*>(nearest), sizeof halves);
  const LaneBits finite = cut(T{}, v, random);
  const auto inside = (bits_of(v) & 0x7fffffffu) <= broadcast_bits(kLargest<T>);
  return __builtin_convertvector(inside ? finite : __builtin_convertvector(halves, LaneBits),
                                 LaneHalves);
}

// The words of Philox counters (update, group + lane, array, stream), as Philox makes them.
struct PhiloxLanes {
  alignas(64) std::uint32_t word[4][kLanes];

  PhiloxLanes(const RoundingDraws& draws, std::uint32_t group) {
    for (int lane = 0; lane < kLanes; ++lane) {
      word[0][lane] = draws.update, word[1][lane] = group + static_cast<std::uint32_t>(lane);
      word[2][lane] = draws.array, word[3][lane] = draws.stream;
    }
    std::uint32_t key0 = draws.seed,
                  key1 = static_cast<std::uint32_t>(Purpose::stochastic_rounding);
    for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u)
      for (int lane = 0; lane < kLanes; ++lane) {
        const std::uint64_t a = 0xD2511F53ull * word[0][lane], b = 0xCD9E8D57ull * word[2][lane];
        word[0][lane] = static_cast<std::uint32_t>(b >> 32) ^ word[1][lane] ^ key0;
        word[1][lane] = static_cast<std::uint32_t>(b);
        word[2][lane] = static_cast<std::uint32_t>(a >> 32) ^ word[3][lane] ^ key1;
        word[3][lane] = static_cast<std::uint32_t>(a);
      }
  }

  // Numbers below 2^16 for 16 elements.
  LaneBits row(int index) const {
    LaneBits words;
    std::memcpy(&words, word[index / 2], sizeof words);
    return index % 2 ? words >> 16 : words & 0xffffu;
  }
};

template <class T>
void round_all(const RoundingDraws& draws, const float* from, T* to, std::int64_t first,
               std::int64_t elements) {
  for (std::int64_t block = 0; block < elements; block += kRoundingBlock) {
    const PhiloxLanes random(draws, static_cast<std::uint32_t>((first + block) / 8));
    const std::int64_t count = std::min(kRoundingBlock, elements - block);
    for (int row = 0; row < count / kLanes; ++row) {
      const std::int64_t at = block + row * kLanes;
      const LaneHalves halves = rounded<T>(load(from + at), random.row(row));
      std::memcpy(static_cast<void*>(to + at), &halves, sizeof halves);
    }
    if (const std::int64_t rest = count % kLanes) {
      const std::int64_t at = block + count - rest;
      Lanes values{};
      std::memcpy(&values, from + at, static_cast<std::size_t>(rest) * sizeof(float));
      const LaneHalves halves = rounded<T>(values, random.row(static_cast<int>(count / kLanes)));
      std::memcpy(static_cast<void*>(to + at), &halves, static_cast<std::size_t>(rest) * sizeof(T));
    }
  }
}

}  // namespace

void round_stochastically(const RoundingDraws& draws, const float* from, Dtype dtype, void* to,
                          std::int64_t first, std::int64_t elements) {
  MEMFLOOR_CHECK(first % kRoundingBlock == 0 && dtype != Dtype::f32, "element ", first, " of ",
                 name_of(dtype), " cannot be rounded to");
  with_dtype(dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (!std::is_same_v<T, float>)
      round_all(draws, from, static_cast<T*>(to), first, elements);
  });
}

}  // namespace memfloor::cpu

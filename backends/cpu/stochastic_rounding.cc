#include "backends/cpu/stochastic_rounding.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/philox_lanes.h"
#include "core/error.h"

namespace memfloor::cpu {
namespace {

static_assert(kRoundingBlock == PhiloxLanes::kNumbers);

// What comes out of adding random bits below the last place and cutting them off, as 16-bit
// patterns in 32-bit lanes; infinities and NaN are not right.
PartBits cut(Bf16, PartBits bits, PartBits random) { return (bits + random) >> 16; }

PartBits cut(F16, PartBits bits, PartBits random) {
  const PartBits sign = (bits >> 16) & 0x8000u;
  const PartBits magnitude = bits & 0x7fffffffu;
  const auto is_small = magnitude < 0x38800000u;  // the result is subnormal
  // A normal result: the exponent's bias changes by 112, and 13 bits go.
  const PartBits normal = (magnitude - (112u << 23) + (random >> 3)) >> 13;
  // A subnormal one is a multiple of 2^-24: in fixed point with 16 bits after the point.
  using PartIntegers = std::int32_t __attribute__((vector_size(4 * kPart)));
  const Part small = reinterpret_cast<Part>(is_small ? magnitude : PartBits{});
  const auto fixed =
      reinterpret_cast<PartBits>(__builtin_convertvector(small * 0x1p40f, PartIntegers));
  return sign | (is_small ? (fixed + random) >> 16 : normal);
}

// The largest finite number, as an FP32 pattern.
template <class T>
constexpr std::uint32_t kLargest = std::is_same_v<T, F16> ? 0x477fe000u : 0x7f7f0000u;

// Up to the largest finite number the random bits decide; beyond it, and for NaN, as to nearest.
template <class T>
void round_part(const float* from, T* to, PartBits random) {
  const auto bits = load_as<PartBits>(from);
  store_part(to, load_as<Part>(from));
  const auto halves = __builtin_convertvector(load_as<PartHalves>(to), PartBits);
  const auto finite = (bits & 0x7fffffffu) <= kLargest<T>;
  store_halves(to, finite ? cut(T{}, bits, random) : halves);
}

template <class T>
void round_all(const RoundingDraws& draws, const float* from, T* to, std::int64_t first,
               std::int64_t elements) {
  for (std::int64_t block = 0; block < elements; block += kRoundingBlock) {
    const auto group = static_cast<std::uint32_t>((first + block) / 8);
    const PhiloxLanes random(draws.seed, Purpose::stochastic_rounding,
                             {draws.update, group, draws.array, draws.stream}, 1);
    const auto count = static_cast<int>(std::min(kRoundingBlock, elements - block));
    for (int i = 0; i < count; i += kPart) {
      const float* part = from + block + i;
      T* rounded = to + block + i;
      const PartBits numbers = random.row(i / kLanes, i % kLanes);
      if (count - i >= kPart) {
        round_part(part, rounded, numbers);
      } else {
        float padded[kPart] = {};
        T result[kPart];
        std::copy(part, from + block + count, padded);
        round_part(padded, result, numbers);
        std::copy(result, result + (count - i), rounded);
      }
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

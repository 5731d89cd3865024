// Number formats of stored values: IEEE binary32, IEEE binary16 and bfloat16.
// Conversions from f32 round to nearest even, keep subnormals, infinities and NaN (quiet, payload
// truncated); conversions to f32 are exact. They are inline and branch-poor so that loops
// vectorise.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace memfloor {

enum class Dtype : std::uint8_t { f32, f16, bf16 };

/// Bytes of one element.
constexpr std::size_t size_of(Dtype dtype) { return dtype == Dtype::f32 ? 4 : 2; }

/// "f32", "f16", "bf16".
const char* name_of(Dtype dtype);

struct Bf16 {
  std::uint16_t bits = 0;
  Bf16() = default;
  explicit Bf16(float value) : bits(round_bits(value)) {}
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }

 private:
  static std::uint16_t round_bits(float value) {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    const std::uint32_t quiet_nan = (u >> 16) | 0x40u;
    return static_cast<std::uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
  }
};

struct F16 {
  std::uint16_t bits = 0;
  F16() = default;
  explicit F16(float value) : bits(round_bits(value)) {}
  explicit operator float() const { return widen(bits); }

 private:
  static std::uint16_t round_bits(float value);
  static float widen(std::uint16_t bits);
};

/// The Dtype of a C++ element type: dtype_of<float> is Dtype::f32.
template <class T>
inline constexpr Dtype dtype_of = [] {
  static_assert(std::is_same_v<T, float>, "not an element type");
  return Dtype::f32;
}();
template <>
inline constexpr Dtype dtype_of<F16> = Dtype::f16;
template <>
inline constexpr Dtype dtype_of<Bf16> = Dtype::bf16;

/// Whole arrays in host memory.
void to_f32(const void* from, Dtype dtype, float* to, std::int64_t elements);
void from_f32(const float* from, Dtype dtype, void* to, std::int64_t elements);

/// Calls `body` with a value-initialised element of the type that `dtype` names.
template <class Body>
decltype(auto) with_dtype(Dtype dtype, Body&& body) {
  switch (dtype) {
    case Dtype::f16:
      return body(F16{});
    case Dtype::bf16:
      return body(Bf16{});
    default:
      return body(float{});
  }
}

// Inline so that loops over F16 arrays vectorise.
inline std::uint16_t F16::round_bits(float value) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (u >> 16) & 0x8000u;
  const std::uint32_t magnitude = u & 0x7fffffffu;
  // Normal result: rebias the exponent by -112 and round away 13 mantissa bits, carries included.
  const std::uint32_t normal =
      (magnitude - (112u << 23) + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13;
  // Subnormal result: adding 0.5 lets the FPU align the mantissa to 2^-24 and round to nearest
  // even.
  const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(aligned) - 0x3f000000u;
  const std::uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  std::uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
  result = magnitude >= 0x477ff000u ? 0x7c00u : result;  // 65520 and more round to infinity
  result = magnitude > 0x7f800000u ? nan : result;
  return static_cast<std::uint16_t>(sign | result);
}

inline float F16::widen(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t magnitude = bits & 0x7fffu;
  const std::uint32_t normal = (magnitude << 13) + (112u << 23);
  const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
  std::uint32_t result = magnitude < 0x400u ? std::bit_cast<std::uint32_t>(subnormal) : normal;
  result = magnitude >= 0x7c00u ? (magnitude << 13) | 0x7f800000u : result;
  return std::bit_cast<float>(sign | result);
}

}  // namespace memfloor

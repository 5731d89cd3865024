// Conversions between f32 and the 16-bit formats: every 16-bit pattern, then rounding against an
// independent reference in double and against PyTorch's own results.
#include "core/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <vector>

#include "core/philox.h"
#include "core/safetensors.h"

namespace memfloor {
namespace {

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

struct Format {
  int mantissa_bits, min_exponent;  // of the smallest normal number
  double max;                       // largest finite number
};
constexpr Format kF16{10, -14, 65504.0};
constexpr Format kBf16{7, -126, 0x1.fep127};

/// The value of a 16-bit pattern that is not NaN, by the definition of its format.
double value_of(std::uint16_t bits, const Format& format) {
  const int magnitude = bits & 0x7fff;
  const int exponent = magnitude >> format.mantissa_bits;
  const int mantissa = magnitude & ((1 << format.mantissa_bits) - 1);
  const int exponent_bits = 15 - format.mantissa_bits;
  double value;
  if (exponent == (1 << exponent_bits) - 1)
    value = std::numeric_limits<double>::infinity();
  else if (exponent == 0)
    value = std::ldexp(mantissa, format.min_exponent - format.mantissa_bits);
  else
    value = std::ldexp(mantissa + (1 << format.mantissa_bits),
                       format.min_exponent + exponent - 1 - format.mantissa_bits);
  return bits & 0x8000 ? -value : value;
}

/// `value` rounded to the format's nearest number, ties to even, by quantising in double.
double rounded(float value, const Format& format) {
  if (std::isinf(value) || value == 0) return value;
  const int exponent = std::max(std::ilogb(value), format.min_exponent);
  const double ulp = std::ldexp(1.0, exponent - format.mantissa_bits);
  const double quotient = std::abs(static_cast<double>(value)) / ulp;  // exact: a power of two
  double whole = std::floor(quotient);
  const double rest = quotient - whole;
  if (rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2) == 1)) ++whole;
  const double result = whole * ulp;
  return std::copysign(result > format.max ? std::numeric_limits<double>::infinity() : result,
                       value);
}

template <class T>
void expect_exact_round_trip(const Format& format) {
  for (std::uint32_t pattern = 0; pattern < 65536; ++pattern) {
    T stored;
    stored.bits = static_cast<std::uint16_t>(pattern);
    const float wide = static_cast<float>(stored);
    const bool is_nan =
        (pattern & 0x7fff) > ((0x7fffu >> format.mantissa_bits) << format.mantissa_bits);
    if (is_nan) {
      ASSERT_TRUE(std::isnan(wide)) << std::hex << pattern;
      ASSERT_TRUE(std::isnan(static_cast<float>(T(wide)))) << std::hex << pattern;
      continue;
    }
    ASSERT_EQ(static_cast<double>(wide), value_of(stored.bits, format)) << std::hex << pattern;
    ASSERT_EQ(std::signbit(wide), pattern >= 0x8000) << std::hex << pattern;
    ASSERT_EQ(T(wide).bits, pattern) << std::hex << pattern;
  }
}

template <class T>
void expect_rounding(std::uint32_t bits, const Format& format) {
  const float value = float_of(bits);
  const T stored(value);
  if (std::isnan(value)) {
    ASSERT_TRUE(std::isnan(static_cast<float>(stored))) << std::hex << bits;
    return;
  }
  ASSERT_EQ(static_cast<double>(static_cast<float>(stored)), rounded(value, format))
      << std::hex << bits;
  ASSERT_EQ(stored.bits >> 15, bits >> 31) << std::hex << bits;
}

/// Patterns at, between and one f32 ulp beside neighbouring numbers of the format, and random ones.
template <class T>
void expect_rounds_to_nearest_even(const Format& format) {
  for (std::uint32_t pattern = 0; pattern < 65535; ++pattern) {
    T low, high;
    low.bits = static_cast<std::uint16_t>(pattern);
    high.bits = static_cast<std::uint16_t>(pattern + 1);
    const double a = static_cast<float>(low), b = static_cast<float>(high);
    if (!std::isfinite(a) || !std::isfinite(b)) continue;
    const std::uint32_t tie = bits_of(static_cast<float>((a + b) / 2));
    for (std::uint32_t bits : {tie - 1, tie, tie + 1, bits_of(static_cast<float>(a)) + 1})
      expect_rounding<T>(bits, format);
  }
  const Philox philox(1, Purpose::synthetic_data);
  for (std::uint32_t i = 0; i < 250000; ++i)
    for (std::uint32_t word : philox({i, 0, 0, 0})) expect_rounding<T>(word, format);
}

TEST(F16, EveryPatternRoundTrips) { expect_exact_round_trip<F16>(kF16); }
TEST(Bf16, EveryPatternRoundTrips) { expect_exact_round_trip<Bf16>(kBf16); }
TEST(F16, RoundsToNearestEven) { expect_rounds_to_nearest_even<F16>(kF16); }
TEST(Bf16, RoundsToNearestEven) { expect_rounds_to_nearest_even<Bf16>(kBf16); }

TEST(F16, OverflowsAndUnderflowsWhereIeeeSays) {
  EXPECT_EQ(F16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(F16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(F16(-65520.0f).bits, 0xfc00);
  EXPECT_EQ(F16(0x1p-25f).bits, 0);  // a tie between 0 and the smallest subnormal
  EXPECT_EQ(F16(std::nextafter(0x1p-25f, 1.0f)).bits, 1);
  EXPECT_EQ(F16(-0.0f).bits, 0x8000);
}

TEST(Bf16, OverflowsWhereIeeeSays) {
  EXPECT_EQ(Bf16(float_of(0x7f7f7fff)).bits, 0x7f7f);
  EXPECT_EQ(Bf16(float_of(0x7f7f8000)).bits, 0x7f80);
  EXPECT_EQ(Bf16(std::numeric_limits<float>::max()).bits, 0x7f80);
}

TEST(Nan, StaysNanWhateverItsPayload) {
  for (std::uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u}) {
    EXPECT_TRUE(std::isnan(static_cast<float>(F16(float_of(bits))))) << std::hex << bits;
    EXPECT_TRUE(std::isnan(static_cast<float>(Bf16(float_of(bits))))) << std::hex << bits;
  }
}

TEST(Dtype, NamesAndSizes) {
  EXPECT_STREQ(name_of(Dtype::f32), "f32");
  EXPECT_STREQ(name_of(Dtype::f16), "f16");
  EXPECT_STREQ(name_of(Dtype::bf16), "bf16");
  EXPECT_EQ(size_of(Dtype::f32), 4u);
  EXPECT_EQ(size_of(Dtype::f16), sizeof(F16));
  EXPECT_EQ(size_of(Dtype::bf16), sizeof(Bf16));
}

// tests/data/numbers.safetensors holds PyTorch's conversions; tests/make_torch_dumps.py made it.
class PyTorchNumbers : public testing::Test {
 protected:
  std::vector<std::int64_t> integers(const char* name) const {
    const TensorView& view = file_.get(name);
    EXPECT_EQ(view.type, StoredType::i64);
    std::vector<std::int64_t> values(view.elements());
    std::memcpy(values.data(), view.data, view.bytes);
    return values;
  }

  SafetensorsFile file_ =
      SafetensorsFile::open(MEMFLOOR_SOURCE_DIR "/tests/data/numbers.safetensors");
};

TEST_F(PyTorchNumbers, ConversionsFromF32Agree) {
  const auto f32 = integers("f32_bits"), bf16 = integers("bf16_bits"), f16 = integers("f16_bits");
  ASSERT_GT(f32.size(), 1000u);
  for (std::size_t i = 0; i < f32.size(); ++i) {
    const float value = float_of(static_cast<std::uint32_t>(f32[i]));
    if (std::isnan(value)) continue;  // payloads may differ
    EXPECT_EQ(Bf16(value).bits, bf16[i]) << std::hex << f32[i];
    EXPECT_EQ(F16(value).bits, f16[i]) << std::hex << f32[i];
  }
}

TEST_F(PyTorchNumbers, ConversionsFromF16Agree) {
  const TensorView& view = file_.get("f16_to_f32");
  ASSERT_EQ(view.elements(), 65536);
  std::vector<float> expected(65536);
  view.copy_to(expected.data());
  for (std::uint32_t pattern = 0; pattern < 65536; ++pattern) {
    F16 stored;
    stored.bits = static_cast<std::uint16_t>(pattern);
    const float wide = static_cast<float>(stored);
    if (std::isnan(expected[pattern]))
      EXPECT_TRUE(std::isnan(wide));
    else
      EXPECT_EQ(bits_of(wide), bits_of(expected[pattern])) << std::hex << pattern;
  }
}

}  // namespace
}  // namespace memfloor

// Optimizer steps on 16-bit arrays, and the rounding of what they store.
#include "core/philox.h"
#include "tests/op_testing.h"

namespace memfloor::testing {
namespace {

constexpr Dtype kHalves[] = {Dtype::f16, Dtype::bf16};

// The value of a 16-bit pattern.
float value_of(std::uint16_t bits, Dtype dtype) {
  float value;
  to_f32(&bits, dtype, &value, 1);
  return value;
}
std::uint16_t nearest(float value, Dtype dtype) {
  std::uint16_t bits;
  from_f32(&value, dtype, &bits, 1);
  return bits;
}
// The two neighbours of a value in a format, as multiples of the gap: lower <= value < lower + gap.
struct Neighbours {
  double lower, gap;
};
Neighbours neighbours(double value, Dtype dtype) {
  const int exponent = dtype == Dtype::f16 ? std::max(std::ilogb(value), -14) - 10
                                           : std::max(std::ilogb(value), -126) - 7;
  const double gap = std::ldexp(1.0, exponent);
  return {std::floor(value / gap) * gap, gap};
}

// What an update stores: weights start at zero and move by -1 * -value, so that both the new weight
// and the new momentum (-value) are rounded.
struct Stored {
  std::vector<std::uint16_t> weights, momentum;
};
Stored stored(const Floats& values, Dtype dtype, Rounding rounding, std::int64_t update = 0,
              std::uint32_t seed = 1, std::uint32_t stream = 0) {
  Floats gradient;
  for (const float v : values) gradient.push_back(-v);
  Stored result{std::vector<std::uint16_t>(values.size()),
                std::vector<std::uint16_t>(values.size())};
  UpdateArrays arrays;
  arrays.elements = static_cast<std::int64_t>(values.size());
  arrays.weight_dtype = arrays.state_dtype = dtype;
  arrays.weights = result.weights.data(), arrays.gradient = gradient.data();
  arrays.state[0] = result.momentum.data();
  arrays.rounding = rounding, arrays.stream = stream;
  backend()->tensor_ops().sgd(
      {}, {.learning_rate = 1, .gradient_scale = 1, .seed = seed, .number = update}, arrays);
  return result;
}
std::vector<std::uint16_t> rounded_weights(const Floats& values, Dtype dtype, Rounding rounding,
                                           std::int64_t update = 0) {
  return stored(values, dtype, rounding, update).weights;
}

struct UpdateCase {
  Dtype weight, gradient, state;
  bool master;
};

// ---- the formula

TEST(LowPrecisionSgd, IsTheFormulaRoundedOnce) {
  constexpr std::int64_t kCount = 20001;  // more than one piece, and a rest
  constexpr float kScale = 64;
  std::vector<UpdateCase> cases;
  for (const Dtype weight : {Dtype::f32, Dtype::f16, Dtype::bf16})
    for (const Dtype gradient : {Dtype::f32, Dtype::f16, Dtype::bf16})
      for (const Dtype state : {Dtype::f32, Dtype::f16, Dtype::bf16})
        for (const bool master : {false, true})
          if (!master || weight != Dtype::f32) cases.push_back({weight, gradient, state, master});
  for (const UpdateCase& c : cases)
    for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
      SCOPED_TRACE(concat(name_of(c.weight), ' ', name_of(c.gradient), ' ', name_of(c.state),
                          c.master ? " master" : ""));
      Floats master = numbers(kCount, 1);
      const Floats w = c.master ? master : rounded(master, c.weight);
      const Floats m = rounded(numbers(kCount, 2), c.state);
      const Floats g = rounded(numbers(kCount, 3, kScale), c.gradient);
      const Buffer weights(w, c.weight), gradient(g, c.gradient), momentum(m, c.state);
      UpdateArrays arrays;
      arrays.elements = kCount;
      arrays.weight_dtype = c.weight, arrays.gradient_dtype = c.gradient;
      arrays.state_dtype = c.state;
      arrays.weights = weights.data(), arrays.gradient = gradient.data();
      arrays.state[0] = momentum.data();
      if (c.master) arrays.master = master.data();
      arrays.rounding = rounding;
      backend()->tensor_ops().sgd({0.9f, 5e-4f, true},
                                  {.learning_rate = 0.1f, .gradient_scale = kScale}, arrays);
      const Floats new_w = weights.read(c.weight), new_m = momentum.read(c.state);
      for (std::size_t i = 0; i < w.size(); ++i) {
        const double d = g[i] / kScale + 5e-4 * w[i];
        const double expected_m = 0.9 * m[i] + d;
        const double expected_w = w[i] - 0.1 * (d + 0.9 * expected_m);
        // Rounding to nearest errs by one unit at most, stochastic by less than two.
        const double units = rounding == Rounding::nearest ? 1 : 2, f32 = 4e-7;
        ASSERT_NEAR(new_m[i], expected_m, units * unit_of(c.state) * std::abs(expected_m) + f32);
        ASSERT_NEAR(new_w[i], expected_w, units * unit_of(c.weight) * std::abs(expected_w) + f32);
        if (c.master) {
          ASSERT_NEAR(master[i], expected_w, f32);
          if (rounding == Rounding::nearest) {
            ASSERT_EQ(new_w[i], value_of(nearest(master[i], c.weight), c.weight));
          }
        }
      }
    }
}

// A scale that is a power of two changes no bit of an FP32 update.
TEST(LowPrecisionSgd, UnscalingIsExact) {
  constexpr std::int64_t kCount = 5000;
  const auto updated = [&](float scale) {
    Floats w = numbers(kCount, 1), m = numbers(kCount, 2);
    Floats g = numbers(kCount, 3);
    for (float& v : g) v *= scale;
    UpdateArrays arrays;
    arrays.elements = kCount;
    arrays.weights = w.data(), arrays.gradient = g.data(), arrays.state[0] = m.data();
    backend()->tensor_ops().sgd({0.9f, 5e-4f, true},
                                {.learning_rate = 0.1f, .gradient_scale = scale}, arrays);
    w.insert(w.end(), m.begin(), m.end());
    return w;
  };
  EXPECT_EQ(updated(1), updated(1024));
  EXPECT_EQ(updated(1), updated(0x1p-20f));
  EXPECT_NE(updated(1), updated(3));
}

// ---- stochastic rounding

TEST(StochasticRounding, LeavesRepresentableValuesAlone) {
  for (const Dtype dtype : kHalves) {
    Floats values;
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits)
      if (const float v = value_of(static_cast<std::uint16_t>(bits), dtype); !std::isnan(v))
        values.push_back(v);
    for (const std::int64_t update : {0, 1, 2, 3}) {
      const auto bits = rounded_weights(values, dtype, Rounding::stochastic, update);
      for (std::size_t i = 0; i < values.size(); ++i)
        ASSERT_EQ(value_of(bits[i], dtype), values[i]) << name_of(dtype);
    }
  }
}

TEST(StochasticRounding, IsUnbiasedBetweenTheTwoNeighbours) {
  constexpr std::size_t kDraws = 65536;
  for (const Dtype dtype : kHalves)
    // Normal numbers, the edge to subnormal ones, subnormal ones, below the smallest; near a power
    // of two, where the gap changes; both signs.
    for (const float v : {1.00001f, 1.003f, -3.1415926f, 0.99999f, -1e-3f, 6.1e-5f, 6.2e-5f, 5e-5f,
                          1.3e-6f, -7.7e-8f, 2e-8f, 12345.6f, 65500.5f, 1e-39f, -3e-41f}) {
      const double magnitude = std::abs(static_cast<double>(v));
      const Neighbours n = neighbours(magnitude, dtype);
      const auto bits = rounded_weights(Floats(kDraws, v), dtype, Rounding::stochastic, 7);
      std::size_t up = 0;
      for (const std::uint16_t b : bits) {
        const double result = value_of(b, dtype) / std::copysign(1.0, v);
        ASSERT_TRUE(result == n.lower || result == n.lower + n.gap) << v << " became " << result;
        up += result != n.lower;
      }
      const double p = (magnitude - n.lower) / n.gap;
      const double deviation = std::sqrt(p * (1 - p) / kDraws);
      // Five standard deviations, and the resolution of subnormal FP16.
      EXPECT_NEAR(static_cast<double>(up) / kDraws, p, 5 * deviation + 0x1p-16)
          << v << ' ' << name_of(dtype);
    }
}

// The draws are functions of (seed, update, element, array, stream), as stochastic_rounding.h says.
TEST(StochasticRounding, DrawsArePhiloxNumbers) {
  constexpr std::int64_t kCount = 40000;  // more than one piece
  const Floats values = numbers(kCount, 1);
  constexpr std::uint32_t kSeed = 5, kUpdate = 11, kStream = 17;
  const Stored result = stored(values, Dtype::bf16, Rounding::stochastic, kUpdate, kSeed, kStream);
  const Philox philox(kSeed, Purpose::stochastic_rounding);
  for (std::uint32_t array = 0; array < 2; ++array)
    for (std::uint32_t e = 0; e < kCount; ++e) {
      const auto words = philox({kUpdate, e / 128 * 16 + e % 16, array, kStream});
      const std::uint32_t word = words[e % 128 / 32];
      const std::uint32_t random = e / 16 % 2 == 0 ? word & 0xffff : word >> 16;
      const float value = array == 0 ? values[e] : -values[e];
      const auto expected =
          static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) + random) >> 16);
      ASSERT_EQ((array == 0 ? result.weights : result.momentum)[e], expected) << e;
    }
}

TEST(StochasticRounding, BecomesInfiniteOnlyWhereNearestDoes) {
  const float infinity = INFINITY;
  for (const Dtype dtype : kHalves) {
    const Floats edges = dtype == Dtype::f16
                             ? Floats{65504, 65510, 65519.9f, 65520, 65536, 1e30f, infinity}
                             : Floats{0x1.fep127f, 0x1.fe8p127f, 0x1.ffp127f, 0x1.fffffep127f};
    for (const float v : edges)
      for (const float value : {v, -v})
        for (const std::uint16_t bits :
             rounded_weights(Floats(1000, value), dtype, Rounding::stochastic))
          ASSERT_EQ(bits, nearest(value, dtype)) << value;
    for (const std::uint16_t bits : rounded_weights(Floats(20, NAN), dtype, Rounding::stochastic))
      EXPECT_TRUE(std::isnan(value_of(bits, dtype)));
  }
}

TEST(StochasticRounding, KeepsStepsThatNearestLoses) {
  constexpr std::size_t kCount = 4096;
  constexpr int kUpdates = 400;
  constexpr float kStep = 1e-4f;  // an eightieth of BF16's gap below 1, at most
  for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
    const Buffer weights(Floats(kCount, 1), Dtype::bf16);
    Floats gradient(kCount, kStep), momentum(kCount);
    UpdateArrays arrays;
    arrays.elements = kCount;
    arrays.weight_dtype = Dtype::bf16;
    arrays.weights = weights.data(), arrays.gradient = gradient.data();
    arrays.state[0] = momentum.data();
    arrays.rounding = rounding;
    for (int update = 0; update < kUpdates; ++update)
      backend()->tensor_ops().sgd({}, {.learning_rate = 1, .number = update}, arrays);
    double mean = 0;
    for (const float w : weights.read(Dtype::bf16)) mean += w / kCount;
    EXPECT_NEAR(mean, rounding == Rounding::nearest ? 1 : 1 - kUpdates * kStep, 5e-4);
  }
}

}  // namespace
}  // namespace memfloor::testing

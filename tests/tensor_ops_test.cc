// Flat ops against their formulas in double.
#include "tests/op_testing.h"

namespace memfloor::testing {
namespace {

TEST(FlatOps, SgdIsTheFormula) {
  constexpr std::int64_t kCount = 40000;  // more than one piece
  for (const bool nesterov : {true, false}) {
    const SgdRule rule{0.9f, 5e-4f, nesterov};
    Floats w = numbers(kCount, 1), m = numbers(kCount, 2);
    const Floats g = numbers(kCount, 3);
    Doubles expected_w(w.begin(), w.end()), expected_m(m.begin(), m.end());
    for (int update = 0; update < 3; ++update) {
      UpdateArrays arrays;
      arrays.elements = kCount;
      arrays.weights = w.data(), arrays.gradient = g.data(), arrays.state[0] = m.data();
      backend()->tensor_ops().sgd(rule, {.learning_rate = 0.1f}, arrays);
      for (std::size_t i = 0; i < w.size(); ++i) {
        const double gradient = g[i] + 5e-4 * expected_w[i];
        expected_m[i] = 0.9 * expected_m[i] + gradient;
        expected_w[i] -= 0.1 * (nesterov ? gradient + 0.9 * expected_m[i] : expected_m[i]);
      }
    }
    EXPECT_LE(distance(w, expected_w), 3e-7);
    EXPECT_LE(distance(m, expected_m), 3e-7);
  }
}

TEST(FlatOps, ImagesToTensor) {
  const std::array<float, 3> mean{0.5f, 0.4f, 0.3f}, deviation{0.2f, 0.25f, 0.3f};
  std::vector<std::uint8_t> bytes(3 * 20000);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::uint8_t>(mix(static_cast<std::uint32_t>(i)));
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    Buffer y(static_cast<std::int64_t>(bytes.size() * size_of(dtype)));
    backend()->tensor_ops().images_to_tensor(bytes.data(), 20000, mean, deviation, dtype, y.data());
    const Floats values = y.read(dtype);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const double expected = (bytes[i] / 255.0 - mean[i % 3]) / deviation[i % 3];
      ASSERT_NEAR(values[i], expected,
                  dtype == Dtype::f32 ? 1e-6 : unit_of(dtype) * std::abs(expected) + 1e-6)
          << i;
    }
  }
}

TEST(FlatOps, AddAndAllFinite) {
  TensorOps& ops = backend()->tensor_ops();
  constexpr std::int64_t kCount = 40005;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    const Floats x = rounded(numbers(kCount, 1), dtype), y = rounded(numbers(kCount, 2), dtype);
    Floats expected;
    for (std::size_t i = 0; i < x.size(); ++i) expected.push_back(x[i] + y[i]);
    const Buffer from(x, dtype), to(y, dtype);
    ops.add(from.data(), to.data(), kCount, dtype);
    EXPECT_EQ(to.read(dtype), rounded(expected, dtype));

    EXPECT_TRUE(ops.all_finite(to.data(), kCount, dtype));
    for (const std::size_t at : {std::size_t{0}, std::size_t{20000}, x.size() - 1})
      for (const float bad : {INFINITY, -INFINITY, NAN}) {
        Floats values = x;
        values[at] = bad;
        EXPECT_FALSE(ops.all_finite(Buffer(values, dtype).data(), kCount, dtype));
      }
  }
}

// Offsets as kernels have them: lines of so many places, `stride` elements apart.
std::vector<std::int64_t> in_lines(std::int64_t count, std::int64_t line, std::int64_t stride) {
  std::vector<std::int64_t> places;
  for (std::int64_t n = 0; n < count; ++n) places.push_back(n / line * stride + n % line);
  return places;
}
std::vector<std::int64_t> apart(std::int64_t count, std::int64_t stride) {
  return in_lines(count, 1, stride);
}

// Lines of 16 outputs, lines of 16 inputs, the canonical order, lines of 4 that no path is made
// for; sizes with and without a rest.
TEST(FlatOps, WeightsArePackedWhereTheLayoutSays) {
  for (const std::int64_t outputs : {32, 37})
    for (const std::int64_t inputs : {48, 50})
      for (const std::int64_t taps : {1, 9}) {
        const std::int64_t wide_outputs = (outputs + 15) / 16 * 16,
                           wide_inputs = (inputs + 15) / 16 * 16;
        WeightLayout output_lines, input_lines, short_lines;
        output_lines.output = in_lines(outputs, 16, wide_inputs * taps * 16);
        output_lines.tap = apart(taps, wide_inputs * 16);
        output_lines.input = apart(inputs, 16);
        input_lines.input = in_lines(inputs, 16, wide_outputs * taps * 16);
        input_lines.tap = apart(taps, wide_outputs * 16);
        input_lines.output = apart(outputs, 16);
        short_lines.output = in_lines(outputs, 4, wide_inputs * taps * 4);
        short_lines.tap = apart(taps, wide_inputs * 4);
        short_lines.input = apart(inputs, 4);
        for (WeightLayout* layout : {&output_lines, &input_lines, &short_lines})
          layout->elements = wide_outputs * taps * wide_inputs;
        for (const WeightLayout& given : {output_lines, input_lines, short_lines,
                                          WeightLayout::ohwi(outputs, taps, inputs, Dtype::f32)})
          for (const Dtype from : {Dtype::f32, Dtype::bf16, Dtype::f16})
            for (const Dtype to : {Dtype::f32, Dtype::bf16}) {
              WeightLayout layout = given;
              layout.dtype = to;
              const Buffer dense(numbers(outputs * taps * inputs, 7), from);
              const Floats stored = dense.read(from);
              Buffer packed(layout.bytes());
              backend()->tensor_ops().pack_weights(dense.data(), from, layout, packed.data());
              const Floats got = packed.read(to);
              Floats expected(static_cast<std::size_t>(layout.elements));
              for (std::int64_t o = 0, n = 0; o < outputs; ++o)
                for (std::int64_t t = 0; t < taps; ++t)
                  for (std::int64_t i = 0; i < inputs; ++i, ++n)
                    expected[layout.offset(o, t, i)] =
                        to == Dtype::f32 ? stored[n] : static_cast<float>(Bf16(stored[n]));
              ASSERT_EQ(got, expected) << outputs << " x " << taps << " x " << inputs;
            }
      }
}

}  // namespace
}  // namespace memfloor::testing

// Small ops on rows of sentences against their formulas in double.
#include "tests/sequence_testing.h"

namespace memfloor::testing {
namespace {

// Rounding to the format, and FP32 arithmetic.
double tolerance(Dtype dtype) { return 4e-7 + 1.01 * unit_of(dtype); }

class SequenceOpsTest : public ::testing::TestWithParam<Dtype> {
 protected:
  const Dtype dtype = GetParam();
  const Sequences s = sentences({3, 1, 21, 8, 2});
  const std::int64_t rows = s.rows();

  void expect_near(const Floats& got, const Doubles& expected) const {
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], expected[i], tolerance(dtype) * (1 + std::abs(expected[i]))) << i;
  }
};

TEST_P(SequenceOpsTest, DropoutIsAddedToTheResidual) {
  for (const std::int64_t columns : {512, 37}) {
    const Floats x = rounded(numbers(rows * columns, 1), dtype);
    const Floats residual = rounded(numbers(rows * columns, 2), dtype);
    Doubles alone, added;
    each_row(s, [&](std::int64_t row, std::int64_t i, std::int64_t t) {
      for (std::int64_t c = 0; c < columns; ++c) {
        const auto at = static_cast<std::size_t>(row * columns + c);
        alone.push_back(x[at] * dropout_factor(kDropout, i, t, c));
        added.push_back(residual[at] + alone.back());
      }
    });
    SequenceOps& ops = backend()->sequence_ops();
    const Buffer in(x, dtype), before(residual, dtype), y(bytes_of(rows * columns, dtype));
    ops.dropout(s, kDropout, columns, dtype, in.data(), y.data());
    expect_near(y.read(dtype), alone);
    ops.add_dropout(s, kDropout, columns, dtype, before.data(), in.data(), y.data());
    const Floats sum = y.read(dtype);
    expect_near(sum, added);
    // In place of either.
    for (const bool into_x : {true, false}) {
      const Buffer a(x, dtype), b(residual, dtype);
      ops.add_dropout(s, kDropout, columns, dtype, b.data(), a.data(), (into_x ? a : b).data());
      EXPECT_EQ((into_x ? a : b).read(dtype), sum);
    }
  }
}

TEST_P(SequenceOpsTest, PositionsAreFairseqsSinusoids) {
  for (const std::int64_t channels : {2, 6, 300}) {
    const Floats x = rounded(numbers(rows * channels, 1), dtype);
    const std::int64_t half = channels / 2;
    Doubles expected;
    each_row(s, [&](std::int64_t row, std::int64_t i, std::int64_t t) {
      for (std::int64_t c = 0; c < channels; ++c) {
        const double index = static_cast<double>(c % half);
        const double frequency =
            half == 1 ? 1 : std::exp(-index * std::log(10000.0) / static_cast<double>(half - 1));
        const double angle = static_cast<double>(t + 2) * frequency;
        expected.push_back((22.5 * x[static_cast<std::size_t>(row * channels + c)] +
                            (c < half ? std::sin(angle) : std::cos(angle))) *
                           dropout_factor(kDropout, i, t, c));
      }
    });
    const Buffer values(x, dtype);
    backend()->sequence_ops().add_positions(s, kDropout, 22.5f, 2, channels, dtype, values.data());
    expect_near(values.read(dtype), expected);
  }
}

TEST_P(SequenceOpsTest, AReluMasksItsGradient) {
  for (const std::int64_t count : {5, 16, 40001}) {
    const Floats y = rounded(numbers(count, 1), dtype), dy = rounded(numbers(count, 2), dtype);
    const Buffer out(y, dtype), gradient(dy, dtype);
    backend()->sequence_ops().mask_relu(count, dtype, out.data(), gradient.data());
    const Floats masked = gradient.read(dtype);
    for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(masked[i], y[i] > 0 ? dy[i] : 0) << i;
  }
}

TEST_P(SequenceOpsTest, SoftmaxAndItsGradientAreTheFormulas) {
  for (const std::int64_t width : {1, 3, 7, 15, 16, 31, 100}) {
    constexpr std::int64_t kGroups = 4;
    const std::int64_t count = rows * kGroups * width;
    const Floats x = rounded(numbers(count, 1, 20), dtype), dy = rounded(numbers(count, 2), dtype);
    Doubles y(x.size()), dx(x.size());
    const Buffer values(x, dtype), gradient(dy, dtype);
    SequenceOps& ops = backend()->sequence_ops();
    ops.softmax(rows, kGroups, width, dtype, values.data());
    ops.softmax_backward(rows, kGroups, width, dtype, values.data(), gradient.data());
    const Floats softmax = values.read(dtype);
    const auto w = static_cast<std::size_t>(width);
    for (std::size_t first = 0; first < x.size(); first += w) {
      double total = 0, product = 0;
      for (std::size_t i = first; i < first + w; ++i) total += std::exp(x[i] - x[first]);
      for (std::size_t i = first; i < first + w; ++i) {
        y[i] = std::exp(x[i] - x[first]) / total;
        product += static_cast<double>(softmax[i]) * dy[i];
      }
      for (std::size_t i = first; i < first + w; ++i) dx[i] = softmax[i] * (dy[i] - product);
    }
    for (std::size_t i = 0; i < x.size(); ++i) {  // relative, down to the least normal number
      const double least = dtype == Dtype::f16 ? 0x1p-25 : 0x1p-126;
      ASSERT_NEAR(softmax[i], y[i], (4e-6 + unit_of(dtype)) * y[i] + least) << width << ", " << i;
    }
    expect_near(gradient.read(dtype), dx);
  }
}

TEST_P(SequenceOpsTest, ResultsDoNotDependOnThreads) {
  constexpr std::int64_t kColumns = 300;
  const Floats x = rounded(numbers(rows * kColumns, 1), dtype);
  const auto results = [&](Backend& on) {
    SequenceOps& ops = on.sequence_ops();
    const Buffer sum(x, dtype), positions(x, dtype), softmax(x, dtype), gradient(x, dtype);
    ops.add_dropout(s, kDropout, kColumns, dtype, sum.data(), sum.data(), sum.data());
    ops.add_positions(s, kDropout, 2, 2, kColumns, dtype, positions.data());
    ops.softmax(rows, 10, 30, dtype, softmax.data());
    ops.softmax_backward(rows, 10, 30, dtype, softmax.data(), gradient.data());
    return std::vector{sum.read(dtype), positions.read(dtype), softmax.read(dtype),
                       gradient.read(dtype)};
  };
  const auto two = results(*backend());
  for (const int threads : {1, 5}) EXPECT_EQ(results(*make_cpu_backend(threads)), two);
}

INSTANTIATE_TEST_SUITE_P(, SequenceOpsTest, ::testing::ValuesIn(kDtypes),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(SequenceOps, SoftmaxKeepsNaNAndTakesInfinities) {
  const float nan = std::nanf(""), none = -INFINITY;
  Floats x{0, none, 0, 1, nan, 1, -500, 500, none};
  backend()->sequence_ops().softmax(3, 1, 3, Dtype::f32, x.data());
  EXPECT_EQ(rows_of(x, 0, 1, 3), (Floats{0.5f, 0, 0.5f}));
  EXPECT_TRUE(std::isnan(x[3]) && std::isnan(x[4]) && std::isnan(x[5]));
  EXPECT_EQ(rows_of(x, 2, 3, 3), (Floats{0, 1, 0}));
}

// fairseq's table and ours have no odd number of channels.
TEST(SequenceOps, RefusesSinusoidsOfOddWidth) {
  Floats x(15);
  EXPECT_THROW(
      backend()->sequence_ops().add_positions(sentences({3}), {}, 1, 2, 5, Dtype::f32, x.data()),
      Error);
}

}  // namespace
}  // namespace memfloor::testing

// Pooling, the linear layer and the loss against their formulas and finite differences.
#include "tests/op_testing.h"

namespace memfloor::testing {
namespace {

TEST(HeadParts, LeaveASamplesBitsAlone) {
  constexpr std::int64_t kPixels = 8, kChannels = 128, kClasses = 10;
  const Floats w = numbers(kClasses * kChannels, 2), b = numbers(kClasses, 3);
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    const auto logits = [&](const Floats& x, std::int64_t images) {
      const Buffer in(x, dtype);
      Floats means(static_cast<std::size_t>(images * kChannels));
      Floats out(static_cast<std::size_t>(images * kClasses));
      backend()
          ->global_average_pool({images, kPixels, kPixels, kChannels, dtype})
          .forward(in.data(), means.data());
      backend()
          ->linear({images, kChannels, kClasses})
          .forward(means.data(), w.data(), b.data(), out.data());
      means.insert(means.end(), out.begin(), out.end());
      return std::pair(means, out);
    };
    for (const std::int64_t count : kParts) {
      constexpr std::int64_t kImage = kPixels * kPixels * kChannels;
      const Floats x = numbers(count * kImage, 1);
      const auto [means, out] = logits(x, count);
      for (std::int64_t n = 0; n < count; ++n) {
        const auto [mean, one] = logits({x.begin() + n * kImage, x.begin() + (n + 1) * kImage}, 1);
        ASSERT_TRUE(
            std::equal(mean.begin(), mean.begin() + kChannels, means.begin() + n * kChannels));
        ASSERT_TRUE(std::equal(one.begin(), one.end(), out.begin() + n * kClasses));
      }
    }
  }
}
TEST(GlobalAveragePoolOp, MeansAndTheirGradient) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    const GlobalAveragePoolDescriptor d{3, 5, 7, 17, dtype};
    const GlobalAveragePool& op = backend()->global_average_pool(d);
    const std::size_t pixels = 35, channels = 17;
    const Floats x = rounded(numbers(3 * 35 * 17, 1), dtype), dy = numbers(3 * 17, 2);
    const auto forward = [&](const Floats& at) {
      Floats y(dy.size());
      op.forward(Buffer(at, dtype).data(), y.data());
      return y;
    };
    Doubles expected(dy.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      expected[i / (pixels * channels) * channels + i % channels] += x[i] / 35.0;
    EXPECT_LE(distance(forward(x), expected), 1e-6);

    const Buffer gradient(static_cast<std::int64_t>(x.size() * size_of(dtype)));
    op.backward(dy.data(), gradient.data());
    const Floats dx = gradient.read(dtype);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double one = dy[i / (pixels * channels) * channels + i % channels] / 35.0;
      ASSERT_NEAR(dx[i], one, std::abs(one) * (dtype == Dtype::f32 ? 1e-6 : unit_of(dtype)));
    }
    if (dtype == Dtype::f32)
      expect_derivative([&](const Floats& at) { return dot(dy, forward(at)); }, x, dx, 0.5f, 2e-6,
                        "pooling");
  }
}

TEST(LinearOp, GradientsAreFiniteDifferences) {
  for (const LinearDescriptor& d :
       {LinearDescriptor{7, 33, 10}, LinearDescriptor{1, 128, 10}, LinearDescriptor{20, 5, 3}}) {
    const Linear& op = backend()->linear(d);
    const Floats x = numbers(d.rows * d.inputs, 1), w = numbers(d.outputs * d.inputs, 2);
    const Floats b = numbers(d.outputs, 3), dy = numbers(d.rows * d.outputs, 4);
    const auto forward = [&](const Floats& in, const Floats& weights, const Floats& bias) {
      Floats y(dy.size(), NAN);
      op.forward(in.data(), weights.data(), bias.data(), y.data());
      return y;
    };
    Doubles expected;
    for (std::int64_t r = 0; r < d.rows; ++r)
      for (std::int64_t o = 0; o < d.outputs; ++o) {
        double sum = b[static_cast<std::size_t>(o)];
        for (std::int64_t i = 0; i < d.inputs; ++i)
          sum += static_cast<double>(x[static_cast<std::size_t>(r * d.inputs + i)]) *
                 w[static_cast<std::size_t>(o * d.inputs + i)];
        expected.push_back(sum);
      }
    EXPECT_LE(distance(forward(x, w, b), expected), 1e-6);

    Floats dx(x.size(), NAN), dw(w.size(), NAN), db(b.size(), NAN);
    op.backward_data(dy.data(), w.data(), dx.data());
    op.backward_weights(x.data(), dy.data(), dw.data(), db.data());
    const auto loss = [&](const Floats& in, const Floats& weights, const Floats& bias) {
      return dot(dy, forward(in, weights, bias));
    };
    expect_derivative([&](const Floats& at) { return loss(at, w, b); }, x, dx, 0.5f, 2e-6, "x");
    expect_derivative([&](const Floats& at) { return loss(x, at, b); }, w, dw, 0.5f, 2e-6, "w");
    expect_derivative([&](const Floats& at) { return loss(x, w, at); }, b, db, 0.5f, 2e-6, "b");
  }
}

TEST(SoftmaxCrossEntropyOp, LossHitsAndGradient) {
  const SoftmaxCrossEntropyDescriptor d{6, 10};
  const SoftmaxCrossEntropy& op = backend()->softmax_cross_entropy(d);
  const Floats logits = numbers(60, 1, 4);
  const std::vector<std::int32_t> labels{0, 9, 3, 3, 5, 7};
  Floats probabilities(60);
  const auto forward = [&](const Floats& at) {
    LossSums sums;
    op.forward(at.data(), labels.data(), probabilities.data(), &sums);
    return sums;
  };
  double loss = 0;
  std::int64_t correct = 0;
  for (std::size_t r = 0; r < 6; ++r) {
    const auto row = logits.begin() + static_cast<std::ptrdiff_t>(10 * r);
    double total = 0;
    for (int c = 0; c < 10; ++c) total += std::exp(static_cast<double>(row[c]));
    loss += std::log(total) - row[labels[r]];
    correct += std::max_element(row, row + 10) - row == labels[r];
  }
  const LossSums sums = forward(logits);
  EXPECT_NEAR(sums.loss, loss, 1e-6 * loss);
  EXPECT_EQ(sums.correct, correct);

  constexpr float kScale = 1.0f / 8;
  Floats gradient(60, NAN);
  op.backward(probabilities.data(), labels.data(), kScale, gradient.data());
  expect_derivative([&](const Floats& at) { return kScale * forward(at).loss; }, logits, gradient,
                    0x1p-5f, 1e-5, "logits");
}

TEST(SoftmaxCrossEntropyOp, AddsToItsSumsAndSurvivesLargeLogits) {
  const SoftmaxCrossEntropy& op = backend()->softmax_cross_entropy({2, 3});
  const Floats logits{1e4f, 0, -1e4f, 5, 5, 5};  // the second row is a tie: the first class wins
  const std::vector<std::int32_t> labels{0, 0};
  Floats probabilities(6);
  LossSums sums{1, 2};
  op.forward(logits.data(), labels.data(), probabilities.data(), &sums);
  EXPECT_NEAR(sums.loss, 1 + std::log(3.0), 1e-12);
  EXPECT_EQ(sums.correct, 4);
  EXPECT_EQ(probabilities[0], 1);
}

}  // namespace
}  // namespace memfloor::testing

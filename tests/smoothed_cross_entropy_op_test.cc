// Label-smoothed cross-entropy against its formula in double and PyTorch.
#include "tests/reference_net.h"
#include "tests/sequence_testing.h"

namespace memfloor::testing {
namespace {

struct SmoothedLossRunner {
  struct Result {
    Floats log_probabilities;
    LossSums sums;
  };
  std::int64_t rows(const Floats& values) const {
    return static_cast<std::int64_t>(values.size()) / d.classes;
  }
  Result forward(const Floats& logits, const std::vector<std::int32_t>& labels,
                 LossSums before = {}) const {
    Result r{logits, before};
    op.forward(rows(logits), r.log_probabilities.data(), labels.data(), &r.sums);
    return r;
  }
  // In the place of the log-probabilities.
  Floats backward(const Floats& log_probabilities, const std::vector<std::int32_t>& labels,
                  float scale, Dtype dtype, bool in_place = true) const {
    const Buffer values(log_probabilities, Dtype::f32);
    const Buffer other(bytes_of(static_cast<std::int64_t>(log_probabilities.size()), dtype));
    const Buffer& to = in_place ? values : other;
    op.backward(rows(log_probabilities), values.floats(), labels.data(), scale, dtype, to.data());
    Floats gradient = to.read(dtype);
    gradient.resize(log_probabilities.size());
    return gradient;
  }

  SmoothedCrossEntropyDescriptor d;
  std::shared_ptr<Backend> on = backend();
  const SmoothedCrossEntropy& op = on->smoothed_cross_entropy(d);
};

class SmoothedLoss : public ::testing::TestWithParam<SmoothedCrossEntropyDescriptor> {
 protected:
  static constexpr std::int64_t kRows = 37;
  const SmoothedCrossEntropyDescriptor d = GetParam();
  const SmoothedLossRunner run{d};
  const Floats logits = numbers(kRows * d.classes, 1, 6);
  const std::vector<std::int32_t> labels = [this] {
    std::vector<std::int32_t> of_rows;
    for (std::uint32_t row = 0; row < kRows; ++row)
      of_rows.push_back(
          static_cast<std::int32_t>(mix(row) % static_cast<std::uint32_t>(d.classes)));
    of_rows[3] = 0, of_rows[4] = static_cast<std::int32_t>(d.classes - 1);
    return of_rows;
  }();
};

TEST_P(SmoothedLoss, IsTheFormula) {
  const auto classes = static_cast<std::size_t>(d.classes);
  constexpr float kScale = 0.25f;
  double loss = 0;
  std::int64_t correct = 0;
  Doubles logs, gradient;
  for (std::size_t row = 0; row < kRows; ++row) {
    const float* in = logits.data() + row * classes;
    const auto label = static_cast<std::size_t>(labels[row]);
    double total = 0;
    for (std::size_t c = 0; c < classes; ++c) total += std::exp(static_cast<double>(in[c]));
    correct += std::max_element(in, in + classes) == in + label;
    for (std::size_t c = 0; c < classes; ++c) {
      const double share = static_cast<double>(d.smoothing) / static_cast<double>(classes);
      const double target = share + (c == label ? 1 - static_cast<double>(d.smoothing) : 0);
      logs.push_back(in[c] - std::log(total));
      loss -= target * logs.back();
      gradient.push_back((std::exp(logs.back()) - target) * kScale);
    }
  }
  const SmoothedLossRunner::Result r = run.forward(logits, labels, {.loss = 2, .correct = 3});
  EXPECT_NEAR(r.sums.loss, loss + 2, 1e-7 * loss);
  EXPECT_EQ(r.sums.correct, correct + 3);
  EXPECT_LE(distance(r.log_probabilities, logs), 1e-7);
  for (const Dtype dtype : kDtypes) {
    const double least = dtype == Dtype::f16 ? 0x1p-25 : 0;
    const Floats got = run.backward(r.log_probabilities, labels, kScale, dtype);
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], gradient[i],
                  unit_of(dtype) * std::abs(gradient[i]) + 1e-6 * kScale + least)
          << name_of(dtype) << ' ' << i;
    EXPECT_EQ(run.backward(r.log_probabilities, labels, kScale, dtype, false), got);
  }
}

TEST_P(SmoothedLoss, ResultsDoNotDependOnThreads) {
  const SmoothedLossRunner::Result two = run.forward(logits, labels);
  for (const int threads : {1, 5}) {
    const SmoothedLossRunner other{d, make_cpu_backend(threads)};
    const SmoothedLossRunner::Result r = other.forward(logits, labels);
    EXPECT_EQ(r.log_probabilities, two.log_probabilities);
    EXPECT_EQ(r.sums.loss, two.sums.loss);
    EXPECT_EQ(r.sums.correct, two.sums.correct);
    for (const Dtype dtype : kDtypes)
      EXPECT_EQ(other.backward(r.log_probabilities, labels, 2, dtype),
                run.backward(r.log_probabilities, labels, 2, dtype));
  }
}

TEST_P(SmoothedLoss, ARowsBitsDoNotDependOnTheOthers) {
  const Floats together = run.forward(logits, labels).log_probabilities;
  for (std::int64_t row = 0; row < kRows; ++row)
    ASSERT_EQ(run.forward(rows_of(logits, row, row + 1, d.classes),
                          {labels[static_cast<std::size_t>(row)]})
                  .log_probabilities,
              rows_of(together, row, row + 1, d.classes));
}

INSTANTIATE_TEST_SUITE_P(, SmoothedLoss,
                         ::testing::Values(SmoothedCrossEntropyDescriptor{6632, 0.1f},
                                           SmoothedCrossEntropyDescriptor{1000, 0},
                                           SmoothedCrossEntropyDescriptor{3, 0.3f},
                                           SmoothedCrossEntropyDescriptor{529, 0.1f}),
                         [](const auto& info) { return concat(info.param.classes, "_classes"); });

TEST(SmoothedCrossEntropy, TheFirstOfEqualLogitsIsTheAnswer) {
  const SmoothedLossRunner run{{5, 0.1f}};
  const Floats logits{0, 2, 2, 1, 2};
  EXPECT_EQ(run.forward(logits, {1}).sums.correct, 1);
  EXPECT_EQ(run.forward(logits, {2}).sums.correct, 0);
  EXPECT_EQ(run.forward(logits, {4}).sums.correct, 0);
}

TEST(SmoothedCrossEntropy, StandsLargeLogitsAndKeepsNaN) {
  const SmoothedLossRunner run{{4, 0}};
  const SmoothedLossRunner::Result r = run.forward({1000, -1000, 0, 990}, {3});
  EXPECT_NEAR(r.sums.loss, 10 + std::log1p(std::exp(-10.0)), 1e-5);
  EXPECT_TRUE(std::isnan(run.forward({0, std::nanf(""), 1, 2}, {3}).sums.loss));
}

TEST(SmoothedCrossEntropyReference, ForwardAndBackward) {
  for (const std::int64_t classes : {40, 6632}) {
    const SmoothedLossRunner run{{classes, 0.1f}};
    const Dump dump("sequence_ops", concat("smoothed_loss_c", classes, '.'));
    const Floats logits = dump.input("logits");
    const std::vector<std::int32_t> labels = dump.labels();
    const SmoothedLossRunner::Result r = run.forward(logits, labels);
    EXPECT_NEAR(r.sums.loss, dump.doubles("loss")[0], 1e-7 * r.sums.loss);
    EXPECT_LE(dump.answer("logits.grad", static_cast<std::int64_t>(logits.size()))
                  .distance_of(run.backward(r.log_probabilities, labels, 1, Dtype::f32)),
              1e-6);
  }
}

}  // namespace
}  // namespace memfloor::testing

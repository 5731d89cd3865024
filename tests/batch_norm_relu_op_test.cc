// Batch norm + ReLU against its formula in double, and finite differences.
#include "tests/op_testing.h"

namespace memfloor::testing {
namespace {

struct BatchNormCase {
  BatchNormReluDescriptor d;
};
void PrintTo(const BatchNormCase& c, std::ostream* out) {
  *out << c.d.images << 'x' << c.d.height << 'x' << c.d.width << 'x' << c.d.channels << ' '
       << name_of(c.d.dtype);
}

class BatchNormReluOp : public ::testing::TestWithParam<BatchNormCase> {
 protected:
  struct Forward {
    Floats mean, inverse, y;
  };
  struct Backward {
    Floats dx, dgamma, dbeta;
  };

  Forward forward(const Floats& x, const Floats& gamma, const Floats& beta,
                  float* running = nullptr) const {
    const Buffer in(x, d.dtype), statistics(d.images * 2 * d.channels * 4);
    const Buffer y(size * static_cast<std::int64_t>(size_of(d.dtype)));
    Forward f{Floats(gamma.size()), Floats(gamma.size()), {}};
    op.statistics(in.data(), statistics.floats());
    op.reduce(statistics.floats(), f.mean.data(), f.inverse.data(), running,
              BatchNormRelu::kMomentum);
    op.forward(in.data(), f.mean.data(), f.inverse.data(), gamma.data(), beta.data(), y.data());
    f.y = y.read(d.dtype);
    return f;
  }
  // dx lies in dy's place, or in `before`, which it is added to.
  Backward backward(const Forward& f, const Floats* before) const {
    const Buffer in(x, d.dtype), y(f.y, d.dtype), gradient(dy, d.dtype);
    const Buffer other(before ? *before : Floats{}, d.dtype), scratch(op.plan().backward_scratch);
    const Buffer sums(d.images * 2 * d.channels * 4);
    const Buffer& dx = before ? other : gradient;
    Backward b{{}, Floats(gamma.size()), Floats(gamma.size())};
    op.mask_gradient({in.data(), y.data(), f.mean.data(), sums.floats()}, gradient.data());
    op.backward(in.data(), gradient.data(), f.mean.data(), f.inverse.data(), gamma.data(),
                sums.floats(), dx.data(), before != nullptr, b.dgamma.data(), b.dbeta.data(),
                scratch.data());
    b.dx = dx.read(d.dtype);
    return b;
  }

  const BatchNormReluDescriptor d = GetParam().d;
  const BatchNormRelu& op = backend()->batch_norm_relu(d);
  const std::int64_t size = d.images * d.pixels() * d.channels;
  // Two clusters, so that after normalisation no value is near the ReLU's kink.
  const Floats x = [this] {
    Floats values = numbers(size, 1);
    for (float& v : values) v = 2 + (v < 0 ? -1 : 1) + v / 4;
    return rounded(values, d.dtype);
  }();
  const Floats gamma = filled(Fill{2, 1, 0.125f}, static_cast<std::size_t>(d.channels));
  const Floats beta = numbers(d.channels, 3, 0.125f);
  const Floats dy = rounded(numbers(size, 4), d.dtype);
};

class BatchNormReluGradient : public BatchNormReluOp {};

TEST_P(BatchNormReluOp, IsTheFormula) {
  const auto channels = static_cast<std::size_t>(d.channels);
  const double count = static_cast<double>(d.images * d.pixels());
  const Floats start = numbers(2 * d.channels, 6);
  Floats running = start;
  const Forward f = forward(x, gamma, beta, running.data());
  Doubles y(x.size()), dx(x.size()), dgamma(channels), dbeta(channels);
  for (std::size_t c = 0; c < channels; ++c) {
    double mean = 0, squares = 0;
    for (std::size_t i = c; i < x.size(); i += channels) mean += x[i] / count;
    for (std::size_t i = c; i < x.size(); i += channels) squares += (x[i] - mean) * (x[i] - mean);
    const double inverse = 1 / std::sqrt(squares / count + BatchNormRelu::kEpsilon);
    EXPECT_NEAR(f.mean[c], mean, 1e-6 * std::abs(mean));
    EXPECT_NEAR(f.inverse[c], inverse, 1e-6 * inverse);
    EXPECT_NEAR(running[c], 0.9 * start[c] + 0.1 * mean, 1e-6);
    EXPECT_NEAR(running[channels + c], 0.9 * start[channels + c] + 0.1 * squares / (count - 1),
                1e-6);
    for (std::size_t i = c; i < x.size(); i += channels) {
      const double normal = (x[i] - mean) * inverse;
      y[i] = std::max(0.0, normal * gamma[c] + beta[c]);
      if (y[i] > 0) dbeta[c] += dy[i], dgamma[c] += dy[i] * normal;
    }
    for (std::size_t i = c; i < x.size(); i += channels) {
      const double normal = (x[i] - mean) * inverse, masked = y[i] > 0 ? dy[i] : 0;
      dx[i] = gamma[c] * inverse * (masked - dbeta[c] / count - normal * dgamma[c] / count);
    }
  }
  const double tolerance = d.dtype == Dtype::f32 ? 1e-6 : 0.77 * unit_of(d.dtype);
  EXPECT_LE(distance(f.y, y), tolerance);
  const Backward b = backward(f, nullptr);
  EXPECT_LE(distance(b.dx, dx), tolerance);
  EXPECT_LE(distance(b.dgamma, dgamma), 2e-6);
  EXPECT_LE(distance(b.dbeta, dbeta), 2e-6);

  const Floats before = rounded(numbers(size, 5), d.dtype);
  const Backward added = backward(f, &before);
  for (std::size_t i = 0; i < dx.size(); ++i) dx[i] += before[i];
  EXPECT_LE(distance(added.dx, dx), tolerance);
  EXPECT_EQ(added.dgamma, b.dgamma);
  EXPECT_EQ(added.dbeta, b.dbeta);
}

TEST_P(BatchNormReluGradient, IsAFiniteDifference) {
  const Backward b = backward(forward(x, gamma, beta), nullptr);
  expect_derivative([&](const Floats& at) { return dot(dy, forward(at, gamma, beta).y); }, x, b.dx,
                    0x1p-5f, 1e-5, "x");
  expect_derivative([&](const Floats& at) { return dot(dy, forward(x, at, beta).y); }, gamma,
                    b.dgamma, 0x1p-4f, 1e-5, "gamma");
  expect_derivative([&](const Floats& at) { return dot(dy, forward(x, gamma, at).y); }, beta,
                    b.dbeta, 0x1p-4f, 1e-5, "beta");
}

TEST_P(BatchNormReluOp, EvaluationUsesTheRunningVariance) {
  Floats running = numbers(2 * d.channels, 6);
  for (float& v : running) v = 1 + v / 2;
  Floats inverse(static_cast<std::size_t>(d.channels));
  op.inverse_running_deviation(running.data(), inverse.data());
  for (std::size_t c = 0; c < inverse.size(); ++c) {
    const double expected = 1 / std::sqrt(running[inverse.size() + c] + 1e-5);
    EXPECT_NEAR(inverse[c], expected, 1e-6 * expected);
  }
}
std::vector<BatchNormCase> batch_norm_cases(Dtype dtype) {
  return {{{4, 6, 6, 16, dtype}},
          {{3, 7, 5, 33, dtype}},
          {{2, 9, 9, 5, dtype}},
          {{5, 4, 4, 112, dtype}}};
}
INSTANTIATE_TEST_SUITE_P(F32, BatchNormReluOp, ::testing::ValuesIn(batch_norm_cases(Dtype::f32)));
INSTANTIATE_TEST_SUITE_P(Bf16, BatchNormReluOp, ::testing::ValuesIn(batch_norm_cases(Dtype::bf16)));
INSTANTIATE_TEST_SUITE_P(F16, BatchNormReluOp, ::testing::ValuesIn(batch_norm_cases(Dtype::f16)));
INSTANTIATE_TEST_SUITE_P(, BatchNormReluGradient,
                         ::testing::ValuesIn(batch_norm_cases(Dtype::f32)));

}  // namespace
}  // namespace memfloor::testing

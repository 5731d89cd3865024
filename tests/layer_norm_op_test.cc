// Layer norm against its formula in double, finite differences and PyTorch.
#include "tests/reference_net.h"
#include "tests/sequence_testing.h"

namespace memfloor::testing {
namespace {

struct LayerNormCase {
  std::int64_t rows;
  LayerNormDescriptor d;
};
void PrintTo(const LayerNormCase& c, std::ostream* out) {
  *out << c.rows << " rows of " << c.d.channels << ", " << name_of(c.d.dtype);
}

struct LayerNormRunner {
  struct Forward {
    Floats y, statistics;
  };
  struct Backward {
    Floats dx, dgamma, dbeta;
  };

  Forward forward(const Floats& x, const Floats& gamma, const Floats& beta) const {
    const Buffer in(x, d.dtype), y(bytes_of(rows(x), d.dtype) * d.channels);
    const Buffer statistics(rows(x) * 2 * 4);
    op.forward(rows(x), in.data(), gamma.data(), beta.data(), y.data(), statistics.floats());
    return {y.read(d.dtype), statistics.read()};
  }
  // dx lies in dy's place.
  Backward backward(const Floats& x, const Floats& gamma, const Forward& f,
                    const Floats& dy) const {
    const Buffer in(x, d.dtype), gradient(dy, d.dtype), scratch(op.plan().backward_scratch);
    Backward b{{}, Floats(gamma.size()), Floats(gamma.size())};
    op.backward(rows(x), in.data(), f.statistics.data(), gamma.data(), gradient.data(),
                gradient.data(), b.dgamma.data(), b.dbeta.data(), scratch.data());
    b.dx = gradient.read(d.dtype);
    return b;
  }
  std::int64_t rows(const Floats& x) const {
    return static_cast<std::int64_t>(x.size()) / d.channels;
  }

  LayerNormDescriptor d;
  std::shared_ptr<Backend> on = backend();
  const LayerNorm& op = on->layer_norm(d);
};

class LayerNormOp : public ::testing::TestWithParam<LayerNormCase> {
 protected:
  const std::int64_t rows = GetParam().rows;
  const LayerNormDescriptor d = GetParam().d;
  const LayerNormRunner run{d};
  // Far from zero, where sums of squares would lose what a variance keeps.
  const Floats x = [this] {
    Floats values = numbers(rows * d.channels, 1);
    for (float& v : values) v += 3;
    return rounded(values, d.dtype);
  }();
  const Floats gamma = filled(Fill{2, 1, 0.125f}, static_cast<std::size_t>(d.channels));
  const Floats beta = numbers(d.channels, 3, 0.125f);
  const Floats dy = rounded(numbers(rows * d.channels, 4), d.dtype);
};
class LayerNormGradient : public LayerNormOp {};

TEST_P(LayerNormOp, IsTheFormula) {
  const auto count = static_cast<double>(d.channels);
  const LayerNormRunner::Forward f = run.forward(x, gamma, beta);
  Doubles y, dx, dgamma(gamma.size()), dbeta(gamma.size());
  for (std::size_t row = 0; row < x.size() / gamma.size(); ++row) {
    const float *in = x.data() + row * gamma.size(), *g = dy.data() + row * gamma.size();
    double mean = 0, squares = 0, sum = 0, product = 0;
    for (std::size_t c = 0; c < gamma.size(); ++c) mean += in[c] / count;
    for (std::size_t c = 0; c < gamma.size(); ++c) squares += (in[c] - mean) * (in[c] - mean);
    const double inverse = 1 / std::sqrt(squares / count + LayerNorm::kEpsilon);
    EXPECT_NEAR(f.statistics[2 * row], mean, 1e-6 * std::abs(mean));
    EXPECT_NEAR(f.statistics[2 * row + 1], inverse, 2e-6 * inverse);
    for (std::size_t c = 0; c < gamma.size(); ++c) {
      const double normal = (in[c] - mean) * inverse;
      y.push_back(normal * gamma[c] + beta[c]);
      dgamma[c] += g[c] * normal, dbeta[c] += g[c];
      sum += g[c] * gamma[c], product += g[c] * gamma[c] * normal;
    }
    for (std::size_t c = 0; c < gamma.size(); ++c)
      dx.push_back(inverse *
                   (g[c] * gamma[c] - sum / count - (in[c] - mean) * inverse * product / count));
  }
  const double tolerance = 2e-6 + unit_of(d.dtype);
  const LayerNormRunner::Backward b = run.backward(x, gamma, f, dy);
  EXPECT_LE(distance(f.y, y), tolerance);
  EXPECT_LE(distance(b.dx, dx), tolerance);
  EXPECT_LE(distance(b.dgamma, dgamma), 2e-6);
  EXPECT_LE(distance(b.dbeta, dbeta), 2e-6);
}

TEST_P(LayerNormGradient, IsAFiniteDifference) {
  const LayerNormRunner::Backward b = run.backward(x, gamma, run.forward(x, gamma, beta), dy);
  const auto loss = [&](const Floats& x_, const Floats& gamma_, const Floats& beta_) {
    return dot(dy, run.forward(x_, gamma_, beta_).y);
  };
  expect_derivative([&](const Floats& at) { return loss(at, gamma, beta); }, x, b.dx, 0x1p-5f, 1e-5,
                    "x");
  expect_derivative([&](const Floats& at) { return loss(x, at, beta); }, gamma, b.dgamma, 0x1p-4f,
                    1e-5, "gamma");
  expect_derivative([&](const Floats& at) { return loss(x, gamma, at); }, beta, b.dbeta, 0x1p-4f,
                    1e-5, "beta");
}

TEST_P(LayerNormOp, ARowsBitsDoNotDependOnTheOthers) {
  const LayerNormRunner::Forward f = run.forward(x, gamma, beta);
  const LayerNormRunner::Backward b = run.backward(x, gamma, f, dy);
  for (std::int64_t row = 0; row < rows; ++row) {
    const Floats alone = rows_of(x, row, row + 1, d.channels);
    const LayerNormRunner::Forward g = run.forward(alone, gamma, beta);
    ASSERT_EQ(g.y, rows_of(f.y, row, row + 1, d.channels)) << row;
    ASSERT_EQ(run.backward(alone, gamma, g, rows_of(dy, row, row + 1, d.channels)).dx,
              rows_of(b.dx, row, row + 1, d.channels))
        << row;
  }
}

TEST_P(LayerNormOp, ResultsDoNotDependOnThreads) {
  const LayerNormRunner::Forward f = run.forward(x, gamma, beta);
  const LayerNormRunner::Backward b = run.backward(x, gamma, f, dy);
  for (const int threads : {1, 5}) {
    const LayerNormRunner other{d, make_cpu_backend(threads)};
    EXPECT_EQ(other.op.plan().backward_scratch, run.op.plan().backward_scratch);
    const LayerNormRunner::Forward g = other.forward(x, gamma, beta);
    const LayerNormRunner::Backward h = other.backward(x, gamma, g, dy);
    EXPECT_EQ(g.y, f.y);
    EXPECT_EQ(h.dx, b.dx);
    EXPECT_EQ(h.dgamma, b.dgamma);
    EXPECT_EQ(h.dbeta, b.dbeta);
  }
}

std::vector<LayerNormCase> layer_norm_cases(Dtype dtype) {
  return {{1, {512, dtype}}, {70, {512, dtype}}, {33, {24, dtype}}, {5, {7, dtype}}};
}
INSTANTIATE_TEST_SUITE_P(F32, LayerNormOp, ::testing::ValuesIn(layer_norm_cases(Dtype::f32)));
INSTANTIATE_TEST_SUITE_P(F16, LayerNormOp, ::testing::ValuesIn(layer_norm_cases(Dtype::f16)));
INSTANTIATE_TEST_SUITE_P(Bf16, LayerNormOp, ::testing::ValuesIn(layer_norm_cases(Dtype::bf16)));
INSTANTIATE_TEST_SUITE_P(, LayerNormGradient, ::testing::ValuesIn(layer_norm_cases(Dtype::f32)));

TEST(LayerNormReference, ForwardAndBackward) {
  for (const std::int64_t channels : {24, 512}) {
    const LayerNormRunner run{{channels}};
    const Dump dump("sequence_ops", concat("layer_norm_c", channels, '.'));
    const Floats x = dump.input("input"), gamma = dump.input("weight");
    const LayerNormRunner::Forward f = run.forward(x, gamma, dump.input("bias"));
    const LayerNormRunner::Backward b = run.backward(x, gamma, f, dump.input("output_grad"));
    EXPECT_LE(dump.answer("output").distance_of(f.y), 1e-6);
    EXPECT_LE(dump.answer("input.grad").distance_of(b.dx), 1e-6);
    EXPECT_LE(dump.answer("weight.grad").distance_of(b.dgamma), 1e-6);
    EXPECT_LE(dump.answer("bias.grad").distance_of(b.dbeta), 1e-6);
  }
}

}  // namespace
}  // namespace memfloor::testing

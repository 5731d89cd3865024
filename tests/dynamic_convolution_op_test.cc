// Both methods of the dynamic convolution against the formula in double, finite differences,
// PyTorch and each other.
#include "tests/reference_net.h"
#include "tests/sequence_testing.h"

namespace memfloor::testing {
namespace {

using Method = DynamicConvolutionMethod;

struct ConvolutionRunner {
  struct Backward {
    Floats dx, dkernels;
  };

  std::int64_t row_width() const { return d.heads * d.kernel; }

  // Leaves what it keeps in `saved`.
  Floats forward(const Sequences& s, const Dropout& dropout, const Floats& x,
                 const Floats& kernels) const {
    const Buffer in(x, d.dtype), weights(kernels, d.dtype), scratch(op.forward_scratch(s));
    const Buffer y(bytes_of(s.rows() * d.channels, d.dtype));
    saved = std::make_unique<Buffer>(bytes_of(op.saved_elements(s), d.dtype));
    op.forward(s, dropout, in.data(), weights.data(), saved->data(), y.data(), scratch.data());
    return y.read(d.dtype);
  }
  // After forward; gets nothing that the method does not read.
  Backward backward(const Sequences& s, const Dropout& dropout, const Floats& x,
                    const Floats& kernels, const Floats& dy) const {
    const bool direct = d.method == Method::direct;
    const Buffer in(x, d.dtype), weights(kernels, d.dtype), gradient(dy, d.dtype);
    const Buffer dx(bytes_of(s.rows() * d.channels, d.dtype)), scratch(op.backward_scratch(s));
    const Buffer dkernels(bytes_of(s.rows() * row_width(), d.dtype));
    op.backward(s, dropout, direct ? in.data() : nullptr, weights.data(),
                direct ? nullptr : saved->data(), gradient.data(), dx.data(), dkernels.data(),
                scratch.data());
    return {dx.read(d.dtype), dkernels.read(d.dtype)};
  }

  DynamicConvolutionDescriptor d;
  std::shared_ptr<Backend> on = backend();
  const DynamicConvolution& op = on->dynamic_convolution(d);
  mutable std::unique_ptr<Buffer> saved = nullptr;
};

void PrintDescriptor(const DynamicConvolutionDescriptor& d, std::ostream* out) {
  *out << d.channels << " channels, " << d.heads << " heads, kernel " << d.kernel << ", left "
       << d.left << ", " << name_of(d.dtype) << (d.method == Method::band ? ", band" : ", direct");
}
struct ConvolutionCase {
  DynamicConvolutionDescriptor d;
};
void PrintTo(const ConvolutionCase& c, std::ostream* out) { PrintDescriptor(c.d, out); }

class DynamicConvolutionOp : public ::testing::TestWithParam<ConvolutionCase> {
 protected:
  const DynamicConvolutionDescriptor d = GetParam().d;
  const ConvolutionRunner run{d};
  const Sequences s = sentences({1, 6, 25, 2, 3});  // shorter than most kernels, and longer
  const Floats x = rounded(numbers(s.rows() * d.channels, 1), d.dtype);
  const Floats kernels = rounded(numbers(s.rows() * run.row_width(), 2), d.dtype);
  const Floats dy = rounded(numbers(s.rows() * d.channels, 3), d.dtype);
};
class DynamicConvolutionGradient : public DynamicConvolutionOp {};

TEST_P(DynamicConvolutionOp, IsTheFormula) {
  const std::int64_t width = d.channels / d.heads;
  for (const Dropout& dropout : {Dropout{}, kDropout}) {
    Doubles y(x.size()), dx(x.size()), dkernels(kernels.size());
    each_row(s, [&](std::int64_t row, std::int64_t i, std::int64_t t) {
      for (std::int64_t k = 0; k < d.kernel; ++k) {
        const std::int64_t from = t + k - d.left;
        if (from < 0 || from >= s.length(i)) continue;
        for (std::int64_t c = 0; c < d.channels; ++c) {
          const std::int64_t column = c / width * d.kernel + k;
          const auto kernel = static_cast<std::size_t>(row * run.row_width() + column);
          const auto out = static_cast<std::size_t>(row * d.channels + c);
          const auto in = static_cast<std::size_t>((row + from - t) * d.channels + c);
          const double factor = dropout_factor(dropout, i, t, column);
          y[out] += factor * kernels[kernel] * x[in];
          dx[in] += factor * kernels[kernel] * dy[out];
          dkernels[kernel] += factor * dy[out] * x[in];
        }
      }
    });
    // Dropped kernels are rounded once more where they are kept.
    const double tolerance = 1e-6 + 1.5 * unit_of(d.dtype);
    EXPECT_LE(distance(run.forward(s, dropout, x, kernels), y), tolerance);
    const ConvolutionRunner::Backward b = run.backward(s, dropout, x, kernels, dy);
    EXPECT_LE(distance(b.dx, dx), tolerance);
    EXPECT_LE(distance(b.dkernels, dkernels), tolerance);
  }
}

TEST_P(DynamicConvolutionGradient, IsAFiniteDifference) {
  const auto loss = [&](const Floats& x_, const Floats& kernels_) {
    return dot(dy, run.forward(s, kDropout, x_, kernels_));
  };
  loss(x, kernels);
  const ConvolutionRunner::Backward b = run.backward(s, kDropout, x, kernels, dy);
  expect_derivative([&](const Floats& at) { return loss(at, kernels); }, x, b.dx, 0x1p-2f, 1e-5,
                    "x");
  expect_derivative([&](const Floats& at) { return loss(x, at); }, kernels, b.dkernels, 0x1p-2f,
                    1e-5, "kernels");
}

TEST_P(DynamicConvolutionOp, ASentencesBitsDoNotDependOnTheOthers) {
  const Floats y = run.forward(s, kDropout, x, kernels);
  const ConvolutionRunner::Backward b = run.backward(s, kDropout, x, kernels, dy);
  for (std::int64_t i = 0; i < s.count(); ++i) {
    const auto part = [&](const Floats& all, std::int64_t columns) {
      return sentence_of(all, s, i, columns);
    };
    const Sequences alone = sentences({s.length(i)});
    const Dropout dropout = moved(kDropout, i);
    const Floats in = part(x, d.channels), weights = part(kernels, run.row_width());
    EXPECT_EQ(run.forward(alone, dropout, in, weights), part(y, d.channels)) << i;
    const ConvolutionRunner::Backward c =
        run.backward(alone, dropout, in, weights, part(dy, d.channels));
    EXPECT_EQ(c.dx, part(b.dx, d.channels)) << i;
    EXPECT_EQ(c.dkernels, part(b.dkernels, run.row_width())) << i;
  }
}

TEST_P(DynamicConvolutionOp, ResultsDoNotDependOnThreads) {
  const Floats y = run.forward(s, kDropout, x, kernels);
  const ConvolutionRunner::Backward b = run.backward(s, kDropout, x, kernels, dy);
  for (const int threads : {1, 5}) {
    const ConvolutionRunner other{d, make_cpu_backend(threads)};
    EXPECT_EQ(other.op.saved_elements(s), run.op.saved_elements(s));
    EXPECT_EQ(other.forward(s, kDropout, x, kernels), y);
    const ConvolutionRunner::Backward c = other.backward(s, kDropout, x, kernels, dy);
    EXPECT_EQ(c.dx, b.dx);
    EXPECT_EQ(c.dkernels, b.dkernels);
  }
}

std::vector<ConvolutionCase> convolution_cases(Dtype dtype) {
  std::vector<ConvolutionCase> cases;
  for (const Method method : {Method::band, Method::direct}) {
    for (const int kernel : {3, 7, 15, 31})
      for (const int left : {kernel / 2, kernel - 1})
        cases.push_back({{128, 4, kernel, left, dtype, method}});
    cases.push_back({{30, 2, 5, 2, dtype, method}});  // fewer channels a head than lanes
    cases.push_back({{150, 2, 4, 1, dtype, method}});
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(F32, DynamicConvolutionOp,
                         ::testing::ValuesIn(convolution_cases(Dtype::f32)));
INSTANTIATE_TEST_SUITE_P(F16, DynamicConvolutionOp,
                         ::testing::ValuesIn(convolution_cases(Dtype::f16)));
INSTANTIATE_TEST_SUITE_P(Bf16, DynamicConvolutionOp,
                         ::testing::ValuesIn(convolution_cases(Dtype::bf16)));
INSTANTIATE_TEST_SUITE_P(, DynamicConvolutionGradient,
                         ::testing::ValuesIn(convolution_cases(Dtype::f32)));

TEST(DynamicConvolution, BandAndDirectAgree) {
  const Sequences s = sentences({4, 40, 1, 19});
  for (const Dtype dtype : kDtypes)
    for (const int kernel : {3, 31}) {
      DynamicConvolutionDescriptor d{64, 4, kernel, kernel - 1, dtype, Method::band};
      const ConvolutionRunner band{d};
      d.method = Method::direct;
      const ConvolutionRunner direct{d};
      const Floats x = rounded(numbers(s.rows() * 64, 1), dtype);
      const Floats kernels = rounded(numbers(s.rows() * 4 * kernel, 2), dtype);
      const double tolerance = 1e-6 + 2 * unit_of(dtype);
      EXPECT_LE(
          distance(direct.forward(s, kDropout, x, kernels), band.forward(s, kDropout, x, kernels)),
          tolerance);
      const ConvolutionRunner::Backward a = direct.backward(s, kDropout, x, kernels, x);
      const ConvolutionRunner::Backward b = band.backward(s, kDropout, x, kernels, x);
      EXPECT_LE(distance(a.dx, b.dx), tolerance);
      EXPECT_LE(distance(a.dkernels, b.dkernels), tolerance);
    }
}

TEST(DynamicConvolution, SavesWhatItsMethodSays) {
  const Sequences s = sentences({25, 3});
  DynamicConvolutionDescriptor d{512, 4, 31, 15, Dtype::f32, Method::band};
  EXPECT_EQ(backend()->dynamic_convolution(d).saved_elements(s),
            28 * 512 + 4 * (25 * (25 + 30) + 3 * (3 + 30)));
  d.method = Method::direct;
  EXPECT_EQ(backend()->dynamic_convolution(d).saved_elements(s), 0);
}

TEST(DynamicConvolution, RefusesWhatItCannotCut) {
  EXPECT_THROW(backend()->dynamic_convolution({16, 3, 3, 1}), Error);
  EXPECT_THROW(backend()->dynamic_convolution({16, 2, 3, 3}), Error);
}

// ---- PyTorch's answers

TEST(DynamicConvolutionReference, ForwardAndBackward) {
  const Sequences s = sentences({1, 4, 9, 2, 20});
  for (const Method method : {Method::band, Method::direct})
    for (const int kernel : {3, 7, 15, 31})
      for (const bool causal : {false, true}) {
        const ConvolutionRunner run{
            {16, 2, kernel, causal ? kernel - 1 : kernel / 2, Dtype::f32, method}};
        const Dump dump("sequence_ops",
                        concat("dynamic_convolution_k", kernel, causal ? "_causal." : "_centred."));
        const Floats x = dump.input("input"), kernels = dump.input("kernels");
        const Floats y = run.forward(s, {}, x, kernels);
        const ConvolutionRunner::Backward b =
            run.backward(s, {}, x, kernels, dump.input("output_grad"));
        EXPECT_LE(dump.answer("output").distance_of(y), 1e-6);
        EXPECT_LE(dump.answer("input.grad").distance_of(b.dx), 1e-6);
        EXPECT_LE(dump.answer("kernels.grad").distance_of(b.dkernels), 1e-6);
      }
}

}  // namespace
}  // namespace memfloor::testing

// Convolution against double loops, finite differences, and its own bits in other parts.
#include "tests/op_testing.h"
#include "tests/sparse_testing.h"

namespace memfloor::testing {
namespace {

ConvolutionDescriptor with_images(ConvolutionDescriptor d, std::int64_t images) {
  d.images = images;
  return d;
}

// Runs a convolution on plain vectors: activations NHWC, weights OHWI.
struct ConvolutionRunner {
  explicit ConvolutionRunner(const ConvolutionDescriptor& descriptor,
                             std::shared_ptr<Backend> backend_ = backend())
      : d(descriptor), owner(std::move(backend_)), op(owner->convolution(d)) {}

  std::int64_t x_size() const { return d.images * d.height * d.width * d.channels_in; }
  std::int64_t y_size() const { return d.images * d.out_height() * d.out_width() * d.channels_out; }
  std::int64_t w_size() const { return d.channels_out * d.kernel * d.kernel * d.channels_in; }

  Buffer packed(const Floats& w, const WeightLayout& layout) const {
    Buffer result(layout.bytes());
    backend()->tensor_ops().pack_weights(w.data(), Dtype::f32, layout, result.data());
    return result;
  }
  Buffer forward_buffer(const Floats& x, const Floats& w, const Floats* residual = nullptr,
                        Floats* statistics = nullptr) const {
    const Buffer in(x, d.dtype), weights = packed(w, op.plan().forward_weights);
    const Buffer added(residual ? *residual : Floats{}, d.dtype);
    const Buffer scratch(op.plan().forward_scratch);
    Buffer y(y_size() * static_cast<std::int64_t>(size_of(d.dtype)));
    if (statistics)
      statistics->assign(static_cast<std::size_t>(d.images * 2 * d.channels_out), NAN);
    op.forward(in.data(), weights.data(), residual ? added.data() : nullptr, y.data(),
               statistics ? statistics->data() : nullptr, scratch.data());
    return y;
  }
  Floats forward(const Floats& x, const Floats& w, const Floats* residual = nullptr,
                 Floats* statistics = nullptr) const {
    return forward_buffer(x, w, residual, statistics).read(d.dtype);
  }
  Floats backward_data(const Floats& dy, const Floats& w, const Floats* dx = nullptr,
                       const MaskedGradientSums* masked = nullptr) const {
    const Buffer out(dy, d.dtype), weights = packed(w, op.plan().backward_weights);
    const Buffer scratch(op.plan().backward_data_scratch);
    const Buffer in =
        dx ? Buffer(*dx, d.dtype) : Buffer(x_size() * static_cast<std::int64_t>(size_of(d.dtype)));
    op.backward_data(out.data(), weights.data(), in.data(), dx != nullptr, masked, scratch.data());
    return in.read(d.dtype);
  }
  Floats backward_weights(const Floats& x, const Floats& dy) const {
    const Buffer in(x, d.dtype), out(dy, d.dtype);
    const Buffer scratch(op.plan().backward_weights_scratch), dw(op.plan().gradient.bytes());
    op.backward_weights(in.data(), out.data(), dw.floats(), scratch.data());
    Floats dense(static_cast<std::size_t>(w_size()));
    backend()->tensor_ops().unpack_gradient(dw.floats(), op.plan().gradient, dense.data(),
                                            Dtype::f32, false);
    return dense;
  }

  // Calls body(x index, w index, y index) for every product of the sum that a convolution is.
  template <class Body>
  void for_products(Body&& body) const {
    const std::int64_t pad = d.kernel / 2;
    for (std::int64_t n = 0; n < d.images; ++n)
      for (std::int64_t oy = 0; oy < d.out_height(); ++oy)
        for (std::int64_t ox = 0; ox < d.out_width(); ++ox)
          for (std::int64_t ky = 0; ky < d.kernel; ++ky)
            for (std::int64_t kx = 0; kx < d.kernel; ++kx) {
              const std::int64_t iy = oy * d.stride + ky - pad, ix = ox * d.stride + kx - pad;
              if (iy < 0 || iy >= d.height || ix < 0 || ix >= d.width) continue;
              const std::int64_t x = ((n * d.height + iy) * d.width + ix) * d.channels_in;
              const std::int64_t y =
                  ((n * d.out_height() + oy) * d.out_width() + ox) * d.channels_out;
              for (std::int64_t o = 0; o < d.channels_out; ++o) {
                const std::int64_t w = ((o * d.kernel + ky) * d.kernel + kx) * d.channels_in;
                for (std::int64_t i = 0; i < d.channels_in; ++i)
                  body(static_cast<std::size_t>(x + i), static_cast<std::size_t>(w + i),
                       static_cast<std::size_t>(y + o));
              }
            }
  }

  ConvolutionDescriptor d;
  std::shared_ptr<Backend> owner;
  const Convolution& op;
};

void PrintDescriptor(const ConvolutionDescriptor& d, std::ostream* out) {
  *out << d.images << 'x' << d.height << 'x' << d.width << ' ' << d.channels_in << "->"
       << d.channels_out << " k" << d.kernel << " s" << d.stride << ' ' << name_of(d.dtype);
}

struct ConvolutionCase {
  ConvolutionDescriptor d;
};
void PrintTo(const ConvolutionCase& c, std::ostream* out) { PrintDescriptor(c.d, out); }

std::vector<ConvolutionCase> convolution_cases(std::vector<Dtype> dtypes) {
  // images, height, width, channels in and out; kernels and strides below.
  constexpr std::int64_t kShapes[][5] = {{3, 7, 9, 3, 16},   {2, 5, 5, 5, 17},  {7, 6, 8, 17, 33},
                                         {4, 8, 8, 16, 32},  {3, 9, 4, 33, 5},  {8, 16, 16, 32, 32},
                                         {20, 8, 8, 32, 64}, {1, 1, 1, 64, 16}, {5, 3, 3, 1, 6}};
  std::vector<ConvolutionCase> cases;
  for (const Dtype dtype : dtypes)
    for (const int kernel : {1, 3})
      for (const int stride : {1, 2})
        for (const auto& s : kShapes)
          cases.push_back({{s[0], s[1], s[2], s[3], s[4], kernel, stride, dtype}});
  return cases;
}

class ConvolutionOp : public ::testing::TestWithParam<ConvolutionCase> {
 protected:
  const ConvolutionRunner run{GetParam().d};
  const Dtype dtype = run.d.dtype;
  // Inputs are what the op sees: rounded to its format.
  const Floats x = rounded(numbers(run.x_size(), 1), dtype);
  const Floats w = rounded(numbers(run.w_size(), 2), dtype);
  const Floats dy = rounded(numbers(run.y_size(), 3), dtype);
  // f32: a sum of a few hundred products. 16 bits: results are rounded once, by a unit each at
  // most; weight gradients stay in f32.
  const double tolerance = dtype == Dtype::f32 ? 1e-6 : 0.77 * unit_of(dtype);
};

// A difference of results rounded to 16 bits says little: f32 only.
class ConvolutionGradient : public ConvolutionOp {};

TEST_P(ConvolutionOp, IsTheDoubleLoop) {
  Doubles y(dy.size()), dx(x.size()), dw(w.size());
  run.for_products([&](std::size_t xi, std::size_t wi, std::size_t yi) {
    y[yi] += static_cast<double>(x[xi]) * w[wi];
    dx[xi] += static_cast<double>(dy[yi]) * w[wi];
    dw[wi] += static_cast<double>(dy[yi]) * x[xi];
  });
  EXPECT_LE(distance(run.forward(x, w), y), tolerance);
  EXPECT_LE(distance(run.backward_data(dy, w), dx), tolerance);
  EXPECT_LE(distance(run.backward_weights(x, dy), dw), 2e-6);

  const Floats before = rounded(numbers(run.x_size(), 4), dtype);
  for (std::size_t i = 0; i < dx.size(); ++i) dx[i] += before[i];
  EXPECT_LE(distance(run.backward_data(dy, w, &before), dx), 1.5 * tolerance);
}

TEST_P(ConvolutionOp, ResidualAndStatisticsFollowTheOutput) {
  const Floats residual = rounded(numbers(run.y_size(), 5), dtype);
  const Floats plain = run.forward(x, w);
  Floats statistics;
  const Floats sum = run.forward(x, w, &residual, &statistics);
  for (std::size_t i = 0; i < sum.size(); ++i) {
    // Whether the sum is rounded once or twice, it is within a rounding of the plain sum.
    const float expected = plain[i] + residual[i];
    const float unit = dtype == Dtype::f32 ? 0x1p-23f : unit_of(dtype);
    ASSERT_NEAR(sum[i], expected,
                unit * (std::abs(expected) + std::abs(plain[i]) + std::abs(residual[i])));
  }
  const std::int64_t pixels = run.d.out_height() * run.d.out_width(), channels = run.d.channels_out;
  for (std::int64_t n = 0; n < run.d.images; ++n)
    for (std::int64_t c = 0; c < channels; ++c) {
      double mean = 0, squares = 0, size = 0;
      const auto value = [&](std::int64_t p) {
        return static_cast<double>(sum[static_cast<std::size_t>((n * pixels + p) * channels + c)]);
      };
      for (std::int64_t p = 0; p < pixels; ++p) mean += value(p) / static_cast<double>(pixels);
      for (std::int64_t p = 0; p < pixels; ++p) {
        squares += (value(p) - mean) * (value(p) - mean);
        size = std::max(size, std::abs(value(p)));
      }
      const auto at = static_cast<std::size_t>(n * 2 * channels + c);
      ASSERT_NEAR(statistics[at], mean, 2e-6 * size);
      ASSERT_NEAR(statistics[at + static_cast<std::size_t>(channels)], squares,
                  2e-6 * static_cast<double>(pixels) * size * size);
    }
}

// What a convolution does for the batch norm before it is what that would do itself, bit for bit.
TEST_P(ConvolutionOp, MasksItsGradientAsTheBatchNormWould) {
  const auto channels = static_cast<std::size_t>(run.d.channels_in);
  const Floats before = rounded(numbers(run.x_size(), 4), dtype);
  const Buffer input(rounded(numbers(run.x_size(), 5), dtype), dtype), output(x, dtype);
  const Floats mean = numbers(run.d.channels_in, 6);
  Floats sums(static_cast<std::size_t>(run.d.images) * 2 * channels, NAN), expected_sums = sums;

  const Buffer expected(run.backward_data(dy, w, &before), dtype);
  backend()
      ->batch_norm_relu({run.d.images, run.d.height, run.d.width, run.d.channels_in, dtype})
      .mask_gradient({input.data(), output.data(), mean.data(), expected_sums.data()},
                     expected.data());
  const MaskedGradientSums masked{input.data(), output.data(), mean.data(), sums.data()};
  EXPECT_EQ(run.backward_data(dy, w, &before, &masked), expected.read(dtype));
  EXPECT_EQ(sums, expected_sums);
}

TEST_P(ConvolutionGradient, IsAFiniteDifference) {
  // Linear in x and in w: any step is exact but for rounding.
  expect_derivative([&](const Floats& at) { return dot(dy, run.forward(at, w)); }, x,
                    run.backward_data(dy, w), 0.5f, 2e-6, "data");
  expect_derivative([&](const Floats& at) { return dot(dy, run.forward(x, at)); }, w,
                    run.backward_weights(x, dy), 0.5f, 2e-6, "weights");
}

TEST_P(ConvolutionOp, WeightsSurviveEveryLayout) {
  TensorOps& ops = backend()->tensor_ops();
  const ConvolutionPlan& plan = run.op.plan();
  for (const WeightLayout* layout :
       {&plan.forward_weights, &plan.backward_weights, &plan.gradient}) {
    const Floats packed = run.packed(w, *layout).read(layout->dtype);
    ASSERT_EQ(static_cast<std::int64_t>(packed.size()), layout->elements);
    ASSERT_EQ(layout->dense_elements(), run.w_size());
    std::vector<bool> used(packed.size());
    for (std::int64_t o = 0, i = 0; o < run.d.channels_out; ++o)
      for (std::int64_t t = 0; t < run.d.kernel * run.d.kernel; ++t)
        for (std::int64_t c = 0; c < run.d.channels_in; ++c, ++i) {
          const auto at = static_cast<std::size_t>(layout->offset(o, t, c));
          ASSERT_FALSE(used[at]) << "two weights in one place";
          used[at] = true;
          ASSERT_EQ(packed[at], w[static_cast<std::size_t>(i)]);
        }
    for (std::size_t i = 0; i < packed.size(); ++i)
      if (!used[i]) {
        ASSERT_EQ(packed[i], 0) << "padding is not zero";
      }
    if (layout->dtype != Dtype::f32) continue;
    Floats dense(w.size());
    ops.unpack_gradient(packed.data(), *layout, dense.data(), Dtype::f32, false);
    EXPECT_EQ(dense, w);
    ops.unpack_gradient(packed.data(), *layout, dense.data(), Dtype::f32, true);
    for (std::size_t i = 0; i < w.size(); ++i) ASSERT_EQ(dense[i], w[i] + w[i]);
  }
}
INSTANTIATE_TEST_SUITE_P(
    , ConvolutionOp, ::testing::ValuesIn(convolution_cases({Dtype::f32, Dtype::bf16, Dtype::f16})));
INSTANTIATE_TEST_SUITE_P(, ConvolutionGradient,
                         ::testing::ValuesIn(convolution_cases({Dtype::f32})));

// ---- a sample's forward bits do not depend on the part it is computed in

class ConvolutionParts : public ::testing::TestWithParam<ConvolutionCase> {};

TEST_P(ConvolutionParts, LeaveASamplesBitsAlone) {
  const ConvolutionRunner one(with_images(GetParam().d, 1));
  const Floats w = numbers(one.w_size(), 2);
  const auto image_bytes = static_cast<std::size_t>(one.y_size()) * size_of(one.d.dtype);
  for (const std::int64_t count : kParts) {
    const ConvolutionRunner many(with_images(GetParam().d, count));
    const Floats x = numbers(many.x_size(), 1), residual = numbers(many.y_size(), 3);
    Floats statistics;
    const Buffer together = many.forward_buffer(x, w, &residual, &statistics);
    for (std::int64_t n = 0; n < count; ++n) {
      const Floats image(x.begin() + n * one.x_size(), x.begin() + (n + 1) * one.x_size());
      const Floats added(residual.begin() + n * one.y_size(),
                         residual.begin() + (n + 1) * one.y_size());
      Floats alone_statistics;
      const Buffer alone = one.forward_buffer(image, w, &added, &alone_statistics);
      ASSERT_TRUE(alone.bytes(0, image_bytes) ==
                  together.bytes(static_cast<std::size_t>(n) * image_bytes, image_bytes))
          << "image " << n << " of " << count;
      ASSERT_TRUE(std::equal(alone_statistics.begin(), alone_statistics.end(),
                             statistics.begin() + n * 2 * one.d.channels_out))
          << "statistics of image " << n << " of " << count;
    }
  }
}

// The convolutions of WRN-28-2, and odd ones.
std::vector<ConvolutionCase> part_cases() {
  std::vector<ConvolutionCase> cases;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16})
    cases.insert(cases.end(), {{{0, 32, 32, 3, 16, 3, 1, dtype}},
                               {{0, 32, 32, 16, 32, 3, 1, dtype}},
                               {{0, 32, 32, 16, 32, 1, 1, dtype}},
                               {{0, 32, 32, 32, 32, 3, 1, dtype}},
                               {{0, 32, 32, 32, 64, 3, 2, dtype}},
                               {{0, 32, 32, 32, 64, 1, 2, dtype}},
                               {{0, 16, 16, 64, 64, 3, 1, dtype}},
                               {{0, 16, 16, 64, 128, 3, 2, dtype}},
                               {{0, 16, 16, 64, 128, 1, 2, dtype}},
                               {{0, 8, 8, 128, 128, 3, 1, dtype}},
                               {{0, 16, 16, 16, 16, 3, 1, dtype}},
                               {{0, 16, 16, 16, 32, 3, 2, dtype}},
                               {{0, 8, 8, 32, 32, 3, 1, dtype}},
                               {{0, 4, 4, 64, 64, 3, 1, dtype}},
                               {{0, 7, 9, 17, 33, 3, 1, dtype}}});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(, ConvolutionParts, ::testing::ValuesIn(part_cases()));

// ---- nor do any bits depend on the number of threads, whether they share images or not

class ConvolutionThreads : public ::testing::TestWithParam<ConvolutionCase> {};

TEST_P(ConvolutionThreads, ChangeNoBit) {
  for (const std::int64_t images : {1, 5, 24}) {
    const ConvolutionDescriptor d = with_images(GetParam().d, images);
    const ConvolutionRunner first(d, make_cpu_backend(1));
    const Floats x = numbers(first.x_size(), 1), w = numbers(first.w_size(), 2),
                 dy = numbers(first.y_size(), 3);
    Floats statistics;
    const Floats y = first.forward(x, w, &dy, &statistics);
    const Floats dx = first.backward_data(dy, w, &x), dw = first.backward_weights(x, dy);
    for (const int threads : {2, 5}) {
      const ConvolutionRunner run(d, make_cpu_backend(threads));
      Floats same_statistics;
      EXPECT_EQ(run.forward(x, w, &dy, &same_statistics), y) << threads << " threads";
      EXPECT_EQ(same_statistics, statistics) << threads << " threads";
      EXPECT_EQ(run.backward_data(dy, w, &x), dx) << threads << " threads";
      EXPECT_EQ(run.backward_weights(x, dy), dw) << threads << " threads";
    }
  }
}
INSTANTIATE_TEST_SUITE_P(, ConvolutionThreads, ::testing::ValuesIn(part_cases()));

// ---- nor on whether compressed weights come with their zeros or without

// A fifth of the weights, in both forms.
struct SparseWeights {
  explicit SparseWeights(Floats dense_) : dense(std::move(dense_)) {
    for (std::size_t i = 0; i < dense.size(); ++i) {
      stored.push_back(i % 5 == i / 45 % 5);
      if (!stored[i]) dense[i] = 0;
    }
  }
  Buffer listed(const ConvolutionDescriptor& d, const NonZeroLayout& layout) const {
    Floats values;
    for (std::size_t i = 0; i < dense.size(); ++i)
      if (stored[i]) values.push_back(dense[i]);
    const TestPattern pattern(SparseIndex::bitmap, d.channels_out, d.kernel * d.kernel,
                              d.channels_in, stored);
    Buffer packed(layout.bytes(static_cast<std::int64_t>(values.size())));
    backend()->tensor_ops().list_non_zeros(values.data(), Dtype::f32, pattern.view(), layout,
                                           packed.data());
    return packed;
  }
  Floats dense;
  std::vector<bool> stored;
};

class ConvolutionNonZeros : public ::testing::TestWithParam<ConvolutionCase> {};

TEST_P(ConvolutionNonZeros, AreTheDenseWeightsAsBytes) {
  for (const std::int64_t images : {1, 5, 24})
    for (const int threads : {1, 2, 5}) {
      const ConvolutionDescriptor d = with_images(GetParam().d, images);
      const ConvolutionRunner run(d, make_cpu_backend(threads));
      const ConvolutionPlan& plan = run.op.plan();
      if (plan.forward_non_zeros.cells == 0 || plan.backward_non_zeros.cells == 0)
        GTEST_SKIP() << "here this convolution reads dense weights only";
      const SparseWeights w(numbers(run.w_size(), 2));
      const Floats x = rounded(numbers(run.x_size(), 1), d.dtype),
                   dy = rounded(numbers(run.y_size(), 3), d.dtype);

      const Buffer in(x, d.dtype), out(dy, d.dtype);
      Floats statistics, same(static_cast<std::size_t>(d.images * 2 * d.channels_out), NAN);
      const Floats y = run.forward(x, w.dense, &dy, &statistics);
      Buffer got(run.y_size() * static_cast<std::int64_t>(size_of(d.dtype)));
      const Buffer forward = w.listed(d, plan.forward_non_zeros);
      run.op.forward(in.data(), {forward.data(), true}, out.data(), got.data(), same.data(),
                     Buffer(plan.forward_non_zeros_scratch).data());
      EXPECT_EQ(got.read(d.dtype), y) << images << " images, " << threads << " threads";
      EXPECT_EQ(same, statistics) << images << " images, " << threads << " threads";

      const Buffer backward = w.listed(d, plan.backward_non_zeros);
      const Buffer scratch(plan.backward_data_non_zeros_scratch);
      const Buffer norm_input(rounded(numbers(run.x_size(), 5), d.dtype), d.dtype);
      const Floats mean = numbers(d.channels_in, 6);
      Floats sums(static_cast<std::size_t>(d.images * 2 * d.channels_in), NAN), same_sums = sums;
      const MaskedGradientSums masked{norm_input.data(), in.data(), mean.data(), sums.data()},
          masked_too{norm_input.data(), in.data(), mean.data(), same_sums.data()};
      for (const bool accumulate : {false, true}) {
        const Buffer dx(x, d.dtype);
        run.op.backward_data(out.data(), {backward.data(), true}, dx.data(), accumulate,
                             &masked_too, scratch.data());
        EXPECT_EQ(dx.read(d.dtype),
                  run.backward_data(dy, w.dense, accumulate ? &x : nullptr, &masked))
            << images << " images, " << threads << " threads";
        EXPECT_EQ(same_sums, sums) << images << " images, " << threads << " threads";
      }
    }
}

// The compressed convolutions of WRN-28-2, as one of its groups has them.
std::vector<ConvolutionCase> compressed_cases() {
  std::vector<ConvolutionCase> cases;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16})
    cases.insert(cases.end(), {{{0, 32, 32, 16, 32, 3, 1, dtype}},
                               {{0, 32, 32, 32, 64, 3, 2, dtype}},
                               {{0, 16, 16, 64, 64, 3, 1, dtype}},
                               {{0, 16, 16, 64, 128, 3, 2, dtype}},
                               {{0, 8, 8, 128, 128, 3, 1, dtype}}});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(, ConvolutionNonZeros, ::testing::ValuesIn(compressed_cases()));

// Where 16-bit operands have to be widened, that is done for a few images at a time.
TEST(ConvolutionScratch, OfWidenedSlicesDoesNotGrowWithTheBatch) {
  for (const ConvolutionCase& c : part_cases()) {
    if (c.d.dtype == Dtype::f32) continue;
    const auto plan = [&](std::int64_t images) {
      return backend()->convolution(with_images(c.d, images)).plan();
    };
    const ConvolutionPlan few = plan(64), many = plan(512);
    EXPECT_LE(many.forward_scratch, few.forward_scratch);
    EXPECT_LE(many.backward_weights_scratch, few.backward_weights_scratch);
    // Two threads, each with a few images, or one, of input and output in f32, and the library's.
    const std::int64_t image = 4 * (c.d.height * c.d.width * c.d.channels_in +
                                    c.d.out_height() * c.d.out_width() * c.d.channels_out);
    EXPECT_LE(many.forward_scratch, 2 * (std::max<std::int64_t>(image, 256 << 10) + (64 << 10)));
  }
}

}  // namespace
}  // namespace memfloor::testing

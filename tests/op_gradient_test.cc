// Every op against the formula it stands for: finite differences, loops in double, and equal bytes
// where a sample must not depend on its neighbours.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "backends/backend.h"
#include "core/ledger.h"
#include "tests/torch_reference.h"

namespace memfloor::testing {
namespace {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

// Numbers in [-scale, scale), different for every stream.
Floats numbers(std::int64_t count, std::uint32_t stream, float scale = 1) {
  return filled(Fill{stream, 0, scale}, static_cast<std::size_t>(count));
}

double dot(const Floats& a, const Floats& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}
double norm(const Floats& a) { return std::sqrt(dot(a, a)); }

// |a - b| / |b|
template <class Expected>
double distance(const Floats& a, const Expected& b) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double expected = b[i];
    error += (a[i] - expected) * (a[i] - expected);
    size += expected * expected;
  }
  return std::sqrt(error / size);
}

// Memory as an op gets it: 64-byte aligned, of one dtype, full of NaN until written.
class Buffer {
 public:
  explicit Buffer(std::int64_t bytes)
      : bytes_(static_cast<std::size_t>(bytes)),
        data_(std::aligned_alloc(64, static_cast<std::size_t>(aligned(bytes) + 64)), std::free) {
    std::memset(data_.get(), 0xff, bytes_);
  }
  Buffer(const Floats& values, Dtype dtype)
      : Buffer(static_cast<std::int64_t>(values.size() * size_of(dtype))) {
    with_dtype(dtype, [&](auto element) {
      using T = decltype(element);
      std::transform(values.begin(), values.end(), static_cast<T*>(data()),
                     [](float v) { return T(v); });
    });
  }
  void* data() const { return data_.get(); }
  float* floats() const { return static_cast<float*>(data()); }
  Floats read(Dtype dtype = Dtype::f32) const {
    Floats values(bytes_ / size_of(dtype));
    with_dtype(dtype, [&](auto element) {
      using T = decltype(element);
      std::transform(static_cast<const T*>(data()), static_cast<const T*>(data()) + values.size(),
                     values.begin(), [](T v) { return static_cast<float>(v); });
    });
    return values;
  }
  std::string bytes(std::size_t first, std::size_t count) const {
    return {static_cast<const char*>(data()) + first, count};
  }

 private:
  std::size_t bytes_;
  std::unique_ptr<void, void (*)(void*)> data_;
};

Floats rounded(const Floats& values, Dtype dtype) { return Buffer(values, dtype).read(dtype); }

// Expects <gradient, direction> to be the derivative of `loss` at `x` along random directions.
// Fourth-order central differences; the error is compared with |gradient| |direction|, which a
// wrong element of a gradient moves far beyond `tolerance`.
void expect_derivative(const std::function<double(const Floats&)>& loss, const Floats& x,
                       const Floats& gradient, float step, double tolerance,
                       const std::string& what) {
  for (std::uint32_t direction = 900; direction < 904; ++direction) {
    const Floats d = numbers(static_cast<std::int64_t>(x.size()), direction);
    const auto at = [&](float t) {
      Floats moved(x);
      for (std::size_t i = 0; i < x.size(); ++i) moved[i] += t * d[i];
      return loss(moved);
    };
    const double slope =
        (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12.0 * step);
    EXPECT_NEAR(slope, dot(gradient, d), tolerance * norm(gradient) * norm(d)) << what;
  }
}

std::shared_ptr<Backend> backend() {
  static const std::shared_ptr<Backend> shared = make_cpu_backend(2);
  return shared;
}

// ---- convolution

ConvolutionDescriptor with_images(ConvolutionDescriptor d, std::int64_t images) {
  d.images = images;
  return d;
}

// Runs a convolution on plain vectors: activations NHWC, weights OHWI.
struct ConvolutionRunner {
  explicit ConvolutionRunner(const ConvolutionDescriptor& descriptor)
      : d(descriptor), op(backend()->convolution(d)) {}

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
  // f32: a sum of a few hundred products. bf16: results are rounded once, by 2^-8 each at most;
  // weight gradients stay in f32.
  const double tolerance = dtype == Dtype::f32 ? 1e-6 : 3e-3;
};

// A difference of results rounded to bf16 says little: f32 only.
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
    const float unit = dtype == Dtype::f32 ? 0x1p-23f : 0x1p-8f;
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
INSTANTIATE_TEST_SUITE_P(, ConvolutionOp,
                         ::testing::ValuesIn(convolution_cases({Dtype::f32, Dtype::bf16})));
INSTANTIATE_TEST_SUITE_P(, ConvolutionGradient,
                         ::testing::ValuesIn(convolution_cases({Dtype::f32})));

// ---- a sample's forward bits do not depend on the part it is computed in

constexpr std::int64_t kParts[] = {2, 3, 5, 7, 10};

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
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
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

TEST(HeadParts, LeaveASamplesBitsAlone) {
  constexpr std::int64_t kPixels = 8, kChannels = 128, kClasses = 10;
  const Floats w = numbers(kClasses * kChannels, 2), b = numbers(kClasses, 3);
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
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

// ---- batch norm + ReLU

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
    op.reduce(statistics.floats(), f.mean.data(), f.inverse.data(), running);
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
  const double tolerance = d.dtype == Dtype::f32 ? 1e-6 : 3e-3;
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
INSTANTIATE_TEST_SUITE_P(, BatchNormReluGradient,
                         ::testing::ValuesIn(batch_norm_cases(Dtype::f32)));

// ---- the head

TEST(GlobalAveragePoolOp, MeansAndTheirGradient) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
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
      ASSERT_NEAR(dx[i], one, std::abs(one) * (dtype == Dtype::f32 ? 1e-6 : 0x1p-8));
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

// ---- flat ops

TEST(FlatOps, SgdIsTheFormula) {
  constexpr std::int64_t kCount = 40000;  // more than one piece
  for (const bool nesterov : {true, false}) {
    const SgdStep step{0.1f, 0.9f, 5e-4f, nesterov};
    Floats w = numbers(kCount, 1), m = numbers(kCount, 2);
    const Floats g = numbers(kCount, 3);
    Doubles expected_w(w.begin(), w.end()), expected_m(m.begin(), m.end());
    for (int update = 0; update < 3; ++update) {
      backend()->tensor_ops().sgd(step, kCount, w.data(), g.data(), m.data());
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
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    Buffer y(static_cast<std::int64_t>(bytes.size() * size_of(dtype)));
    backend()->tensor_ops().images_to_tensor(bytes.data(), 20000, mean, deviation, dtype, y.data());
    const Floats values = y.read(dtype);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const double expected = (bytes[i] / 255.0 - mean[i % 3]) / deviation[i % 3];
      ASSERT_NEAR(values[i], expected,
                  dtype == Dtype::f32 ? 1e-6 : 0x1p-8 * std::abs(expected) + 1e-6)
          << i;
    }
  }
}

TEST(FlatOps, AddAndAllFinite) {
  TensorOps& ops = backend()->tensor_ops();
  constexpr std::int64_t kCount = 40005;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
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

}  // namespace
}  // namespace memfloor::testing

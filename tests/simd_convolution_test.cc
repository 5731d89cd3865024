// Our own FP32 convolution kernels against a double loop, and byte for byte across slices of a
// batch and pieces of the weights.
#include "backends/cpu/simd_convolution.h"

#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "tests/convolution_kernels_testing.h"

namespace memfloor::cpu {
namespace {

struct Sums {
  std::vector<double> values, magnitudes;  // magnitudes: of the terms' absolute values
  explicit Sums(std::size_t count) : values(count), magnitudes(count) {}
  void add(std::size_t i, double term) {
    values[i] += term;
    magnitudes[i] += std::fabs(term);
  }
};

/// Calls body(x index, w index, y index) for every product of the sum that a convolution is.
template <class Body>
void for_products(const Case& c, Body&& body) {
  const auto d = c.descriptor();
  const int pad = c.kernel / 2;
  for (int n = 0; n < c.n; ++n)
    for (int oy = 0; oy < d.out_height(); ++oy)
      for (int ox = 0; ox < d.out_width(); ++ox)
        for (int tap = 0; tap < c.taps(); ++tap) {
          const int iy = oy * c.stride + tap / c.kernel - pad;
          const int ix = ox * c.stride + tap % c.kernel - pad;
          if (iy < 0 || iy >= c.h || ix < 0 || ix >= c.w) continue;
          const std::size_t in = (static_cast<std::size_t>(n) * c.h + iy) * c.w + ix;
          const auto out = static_cast<std::size_t>((n * d.out_height() + oy) * d.out_width() + ox);
          for (int o = 0; o < c.co; ++o)
            for (int i = 0; i < c.ci; ++i)
              body(in * c.ci + i, weight_index(c, o, tap, i), out * c.co + o);
        }
}

/// The three passes by definition.
struct Definition {
  Sums y, dx, dw;

  Definition(const Case& c, const std::vector<float>& x, const std::vector<float>& w,
             const std::vector<float>& dy)
      : y(c.y_size()), dx(c.x_size()), dw(c.w_size()) {
    for_products(c, [&](std::size_t xi, std::size_t wi, std::size_t yi) {
      y.add(yi, static_cast<double>(x[xi]) * w[wi]);
      dx.add(xi, static_cast<double>(dy[yi]) * w[wi]);
      dw.add(wi, static_cast<double>(dy[yi]) * x[xi]);
    });
  }
};

/// Sums of a few thousand terms in f32: the error stays far below 16 roundings of their magnitude.
void expect_close(const std::vector<float>& got, const Sums& wanted) {
  ASSERT_EQ(got.size(), wanted.values.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_LE(std::fabs(got[i] - wanted.values[i]), 16 * 0x1p-24 * wanted.magnitudes[i])
        << "element " << i << ": " << got[i] << " instead of " << wanted.values[i];
}

std::vector<float> packed_weights(const Case& c, SlicePass pass, const std::vector<float>& w) {
  const WeightLayout layout = simd_weights(c.descriptor(), pass);
  std::vector<float> packed(layout.elements, std::numeric_limits<float>::quiet_NaN());
  for (int o = 0; o < c.co; ++o)
    for (int tap = 0; tap < c.taps(); ++tap)
      for (int i = 0; i < c.ci; ++i)
        packed[layout.offset(o, tap, i)] = w[weight_index(c, o, tap, i)];
  return packed;
}

class SimdConvolution : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!simd_convolution_serves(c_.descriptor()))
      GTEST_SKIP() << "compiled for vectors of fewer than 8 floats";
  }
  const Case c_ = GetParam();
  const std::vector<float> x_ = random_values(c_.x_size(), 1);
  const std::vector<float> dy_ = random_values(c_.y_size(), 2);
  const std::vector<float> w_ = random_values(c_.w_size(), 3);
};

/// A pass over all images at once; the result, and scratch full of NaN, between guards.
template <class T>
std::vector<T> convolve(const Case& c, SlicePass pass, const std::vector<T>& in,
                        const std::vector<float>& packed) {
  const auto d = c.descriptor(kDtype<T>);
  Guarded scratch(simd_convolution_scratch_bytes(d, pass) / sizeof(float));
  const std::size_t size = pass == SlicePass::forward ? c.y_size() : c.x_size();
  std::vector<T> out(size + 2 * kGuard, T(7.0f));
  simd_convolution(d, pass, Operand(in).data(), Operand(packed).data(), out.data() + kGuard,
                   scratch.data());
  EXPECT_TRUE(scratch.guards_untouched());
  const auto untouched = [](T value) { return static_cast<float>(value) == 7.0f; };
  EXPECT_TRUE(std::all_of(out.begin(), out.begin() + kGuard, untouched));
  EXPECT_TRUE(std::all_of(out.end() - kGuard, out.end(), untouched));
  return {out.begin() + kGuard, out.end() - kGuard};
}

TEST_P(SimdConvolution, IsTheDoubleLoop) {
  const Definition wanted(c_, x_, w_, dy_);
  const auto forward = packed_weights(c_, SlicePass::forward, w_);
  expect_close(convolve(c_, SlicePass::forward, x_, forward), wanted.y);
  const auto backward = packed_weights(c_, SlicePass::backward_data, w_);
  expect_close(convolve(c_, SlicePass::backward_data, dy_, backward), wanted.dx);
}

TEST_P(SimdConvolution, AlignmentDoesNotMatter) {
  const auto packed = packed_weights(c_, SlicePass::forward, w_);
  const auto convolve_shifted = [&](std::size_t shift) {
    Guarded in(x_, shift), weights(packed, shift), out(c_.y_size(), shift);
    simd_convolution(c_.descriptor(), SlicePass::forward, in.data(), weights.data(), out.data(),
                     nullptr);
    EXPECT_TRUE(out.guards_untouched());
    return out.values();
  };
  EXPECT_TRUE(same_bytes(convolve_shifted(0), convolve_shifted(1)));
}

/// Of 16-bit activations: the FP32 result of their values, rounded once.
template <class T>
void expect_rounded(const Case& c, SlicePass pass, const std::vector<float>& in,
                    const std::vector<float>& w) {
  const auto packed = packed_weights(c, pass, w);
  const std::vector<T> narrow(in.begin(), in.end());
  const auto wide = convolve(c, pass, std::vector<float>(narrow.begin(), narrow.end()), packed);
  const auto out = convolve(c, pass, narrow, packed);
  for (std::size_t i = 0; i < out.size(); ++i)
    ASSERT_EQ(static_cast<float>(out[i]), static_cast<float>(T(wide[i]))) << "element " << i;
}

TEST_P(SimdConvolution, SixteenBitsAreRoundedOnce) {
  expect_rounded<Bf16>(c_, SlicePass::forward, x_, w_);
  expect_rounded<F16>(c_, SlicePass::forward, x_, w_);
  expect_rounded<Bf16>(c_, SlicePass::backward_data, dy_, w_);
  expect_rounded<F16>(c_, SlicePass::backward_data, dy_, w_);
}

TEST_P(SimdConvolution, AnImageDoesNotDependOnItsSlice) {
  Case one = c_;
  one.n = 1;
  for (const SlicePass pass : {SlicePass::forward, SlicePass::backward_data}) {
    const auto& in = pass == SlicePass::forward ? x_ : dy_;
    const auto packed = packed_weights(c_, pass, w_);
    const auto whole = convolve(c_, pass, in, packed);
    const auto image_in = in.size() / c_.n, image_out = whole.size() / c_.n;
    for (int n = 0; n < c_.n; ++n) {
      const std::vector<float> image(in.begin() + n * image_in, in.begin() + (n + 1) * image_in);
      const std::vector<float> wanted(whole.begin() + n * image_out,
                                      whole.begin() + (n + 1) * image_out);
      EXPECT_TRUE(same_bytes(convolve(one, pass, image, packed), wanted)) << "image " << n;
    }
  }
}

TEST_P(SimdConvolution, BandsMakeTheWhole) {
  const auto d = c_.descriptor();
  for (const SlicePass pass : {SlicePass::forward, SlicePass::backward_data}) {
    const bool forward = pass == SlicePass::forward;
    const auto& in = forward ? x_ : dy_;
    const auto packed = packed_weights(c_, pass, w_);
    const auto whole = convolve(c_, pass, in, packed);
    const std::int64_t height = forward ? d.out_height() : d.height;
    const std::size_t row = whole.size() / static_cast<std::size_t>(c_.n * height);
    std::int64_t next = 0;
    for (std::int64_t band = 0, bands = simd_convolution_bands(d, pass); band < bands; ++band) {
      std::vector<float> out(whole.size(), 7.0f);
      simd_convolution(d, pass, in.data(), packed.data(), out.data(), nullptr, {band, bands});
      const RowRange rows = simd_band_rows(d, pass, {band, bands});
      EXPECT_EQ(rows.first, next);
      next = rows.last;
      for (std::size_t i = 0; i < out.size(); ++i) {
        const auto y = static_cast<std::int64_t>(i / row) % height;
        ASSERT_EQ(out[i], y >= rows.first && y < rows.last ? whole[i] : 7.0f) << "element " << i;
      }
    }
    EXPECT_EQ(next, height);
  }
}

/// All pieces, with scratch between guards and full of NaN.
template <class T>
std::vector<float> weight_gradient(const Case& c, const std::vector<T>& x,
                                   const std::vector<T>& dy) {
  const auto d = c.descriptor(kDtype<T>);
  const Operand guarded_x(x), guarded_dy(dy);
  Guarded dw(c.w_size());
  for (int co = 0; co < c.co; co += kSimdChannels)
    for (int ci = 0; ci < c.ci; ci += kSimdChannels) {
      Guarded scratch(simd_weight_gradient_scratch_bytes(d) / sizeof(float));
      simd_weight_gradient(d, co, ci, guarded_x.data(), guarded_dy.data(), dw.data(),
                           scratch.data());
      EXPECT_TRUE(scratch.guards_untouched());
    }
  EXPECT_TRUE(dw.guards_untouched());
  return dw.values();
}

TEST_P(SimdConvolution, WeightGradientIsTheDoubleLoop) {
  expect_close(weight_gradient(c_, x_, dy_), Definition(c_, x_, w_, dy_).dw);
}

template <class T>
void expect_widening(const Case& c, const std::vector<float>& x, const std::vector<float>& dy) {
  const std::vector<T> narrow_x(x.begin(), x.end()), narrow_dy(dy.begin(), dy.end());
  const std::vector<float> wide_x(narrow_x.begin(), narrow_x.end());
  const std::vector<float> wide_dy(narrow_dy.begin(), narrow_dy.end());
  EXPECT_TRUE(
      same_bytes(weight_gradient(c, narrow_x, narrow_dy), weight_gradient(c, wide_x, wide_dy)));
}

TEST_P(SimdConvolution, WeightGradientOf16BitOperandsIsThatOfTheirValues) {
  expect_widening<Bf16>(c_, x_, dy_);
  expect_widening<F16>(c_, x_, dy_);
}

TEST_P(SimdConvolution, APieceOfTheWeightGradientLeavesTheOthersAlone) {
  const auto d = c_.descriptor();
  const auto whole = weight_gradient(c_, x_, dy_);
  const int co = c_.co - kSimdChannels, ci = c_.ci - kSimdChannels;
  std::vector<float> dw(c_.w_size(), 7.0f);
  std::vector<float> scratch(simd_weight_gradient_scratch_bytes(d) / sizeof(float));
  simd_weight_gradient(d, co, ci, x_.data(), dy_.data(), dw.data(), scratch.data());
  for (int o = 0; o < c_.co; ++o)
    for (int tap = 0; tap < c_.taps(); ++tap)
      for (int i = 0; i < c_.ci; ++i) {
        const auto at = weight_index(c_, o, tap, i);
        ASSERT_EQ(dw[at], o >= co && i >= ci ? whole[at] : 7.0f) << o << ' ' << tap << ' ' << i;
      }
}

/// Images of one strip and of several, parts of an image, odd and tiny ones, and WRN-28-2's own.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int stride : {1, 2}) {
    for (const Case& c : {Case{1, 32, 32, 16, 32}, Case{2, 32, 32, 32, 32}, Case{1, 16, 16, 64, 64},
                          Case{5, 8, 8, 128, 128}, Case{3, 1, 1, 16, 16}, Case{3, 5, 7, 48, 16},
                          Case{1, 7, 5, 16, 48}, Case{3, 4, 4, 32, 80}, Case{2, 1, 9, 16, 32},
                          Case{2, 9, 1, 32, 16}, Case{3, 2, 2, 48, 48}, Case{1, 3, 300, 16, 16},
                          Case{3, 13, 15, 16, 64}, Case{3, 70, 3, 16, 16}, Case{37, 3, 3, 16, 16}})
      all.push_back({c.n, c.h, c.w, c.ci, c.co, 3, stride});
    for (const Case& c : {Case{1, 32, 32, 32, 64}, Case{3, 1, 1, 16, 16}, Case{3, 5, 7, 48, 16},
                          Case{1, 3, 300, 16, 16}, Case{37, 3, 3, 16, 16}})
      all.push_back({c.n, c.h, c.w, c.ci, c.co, 1, stride});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Shapes, SimdConvolution, testing::ValuesIn(cases()), [](const auto& info) {
  const Case& c = info.param;
  return concat(c.n, "x", c.h, "x", c.w, "_", c.ci, "to", c.co, "_k", c.kernel, "_s", c.stride);
});

TEST(SimdConvolutionSupport, NamesWhatItServes) {
  const bool vectors = std::string(simd_convolution_vectors()) != "none";
  EXPECT_EQ(simd_convolution_serves({1, 32, 32, 16, 48, 3, 1}), vectors);
  EXPECT_EQ(simd_convolution_serves({1, 32, 32, 16, 48, 1, 2}), vectors);
  EXPECT_FALSE(simd_convolution_serves({1, 32, 32, 3, 16, 3, 1}));
  EXPECT_FALSE(simd_convolution_serves({1, 32, 32, 16, 24, 3, 1}));
  EXPECT_FALSE(simd_convolution_serves({1, 32, 32, 16, 16, 5, 1}));
  EXPECT_FALSE(simd_convolution_serves({1, 32, 32, 16, 16, 3, 3}));
  float value = 0;
  EXPECT_THROW(
      simd_convolution({1, 4, 4, 3, 16}, SlicePass::forward, &value, &value, &value, &value),
      Error);
  EXPECT_THROW(simd_weight_gradient({1, 4, 4, 16, 3}, 0, 0, &value, &value, &value, &value), Error);
}

TEST(SimdConvolutionSupport, LayoutsAreDense) {
  for (const SlicePass pass : {SlicePass::forward, SlicePass::backward_data}) {
    const WeightLayout layout = simd_weights({1, 4, 4, 48, 32, 3, 1}, pass);
    EXPECT_FALSE(layout.padded());
    std::vector<bool> taken(layout.elements);
    for (int o = 0; o < 32; ++o)
      for (int tap = 0; tap < 9; ++tap)
        for (int i = 0; i < 48; ++i) taken.at(layout.offset(o, tap, i)) = true;
    EXPECT_EQ(std::count(taken.begin(), taken.end(), true), layout.elements);
  }
}

}  // namespace
}  // namespace memfloor::cpu

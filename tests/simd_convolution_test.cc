// Our own FP32 convolution kernels against a double loop, and byte for byte across slices of a
// batch and pieces of the weights.
#include "backends/cpu/simd_convolution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"

namespace memfloor::cpu {
namespace {

constexpr std::size_t kGuard = 1024;  // floats

/// `count` NaNs on a 64-byte boundary plus `shift` floats, between guards of NaN.
class Guarded {
 public:
  explicit Guarded(std::size_t count, std::size_t shift = 0)
      : count_(count), all_(count + 2 * kGuard + 32, std::numeric_limits<float>::quiet_NaN()) {
    void* start = all_.data() + kGuard;
    std::size_t space = (count + 16) * sizeof(float);
    data_ = static_cast<float*>(std::align(64, count * sizeof(float), start, space)) + shift;
  }
  Guarded(const std::vector<float>& values, std::size_t shift) : Guarded(values.size(), shift) {
    std::copy(values.begin(), values.end(), data_);
  }
  float* data() { return data_; }
  std::vector<float> values() const { return {data_, data_ + count_}; }
  bool guards_untouched() const {
    for (const float* p = all_.data(); p != all_.data() + all_.size(); ++p)
      if ((p < data_ || p >= data_ + count_) && !std::isnan(*p)) return false;
    return true;
  }

 private:
  std::size_t count_;
  std::vector<float> all_;
  float* data_;
};

std::vector<float> random_values(std::size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

struct Case {
  int n, h, w, ci, co;

  SimdShape shape() const { return {h, w, ci, co}; }
  std::size_t pixels() const { return static_cast<std::size_t>(n) * h * w; }
  std::size_t weights() const { return static_cast<std::size_t>(9) * ci * co; }
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.n << " images " << c.h << " x " << c.w << ", " << c.ci << " to " << c.co;
}

struct Sums {
  std::vector<double> values, magnitudes;  // magnitudes: of the terms' absolute values
  explicit Sums(std::size_t count) : values(count), magnitudes(count) {}
  void add(std::size_t i, double term) {
    values[i] += term;
    magnitudes[i] += std::fabs(term);
  }
};

/// Calls body(output pixel, tap, input pixel) for every product inside the images.
template <class Body>
void for_taps(const Case& c, Body&& body) {
  for (int n = 0; n < c.n; ++n)
    for (int oy = 0; oy < c.h; ++oy)
      for (int ox = 0; ox < c.w; ++ox)
        for (int tap = 0; tap < 9; ++tap) {
          const int iy = oy + tap / 3 - 1, ix = ox + tap % 3 - 1;
          if (iy < 0 || iy >= c.h || ix < 0 || ix >= c.w) continue;
          const auto pixel = [&](int y, int x) {
            return (static_cast<std::size_t>(n) * c.h + y) * c.w + x;
          };
          body(pixel(oy, ox), tap, pixel(iy, ix));
        }
}

std::size_t weight_index(const Case& c, int o, int tap, int i) {
  return (static_cast<std::size_t>(o) * 9 + tap) * c.ci + i;
}

/// The three passes by definition: y from x and w, dx from dy and w, dw from x and dy.
Sums naive_forward(const Case& c, const std::vector<float>& x, const std::vector<float>& w) {
  Sums y(c.pixels() * c.co);
  for_taps(c, [&](std::size_t out, int tap, std::size_t in) {
    for (int o = 0; o < c.co; ++o)
      for (int i = 0; i < c.ci; ++i)
        y.add(out * c.co + o,
              static_cast<double>(x[in * c.ci + i]) * w[weight_index(c, o, tap, i)]);
  });
  return y;
}

Sums naive_backward_data(const Case& c, const std::vector<float>& dy, const std::vector<float>& w) {
  Sums dx(c.pixels() * c.ci);
  for_taps(c, [&](std::size_t out, int tap, std::size_t in) {
    for (int o = 0; o < c.co; ++o)
      for (int i = 0; i < c.ci; ++i)
        dx.add(in * c.ci + i,
               static_cast<double>(dy[out * c.co + o]) * w[weight_index(c, o, tap, i)]);
  });
  return dx;
}

Sums naive_weight_gradient(const Case& c, const std::vector<float>& x,
                           const std::vector<float>& dy) {
  Sums dw(c.weights());
  for_taps(c, [&](std::size_t out, int tap, std::size_t in) {
    for (int o = 0; o < c.co; ++o)
      for (int i = 0; i < c.ci; ++i)
        dw.add(weight_index(c, o, tap, i),
               static_cast<double>(x[in * c.ci + i]) * dy[out * c.co + o]);
  });
  return dw;
}

/// Sums of a few thousand terms in f32: the error stays far below 16 roundings of their magnitude.
void expect_close(const std::vector<float>& got, const Sums& wanted) {
  ASSERT_EQ(got.size(), wanted.values.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_LE(std::fabs(got[i] - wanted.values[i]), 16 * 0x1p-24 * wanted.magnitudes[i])
        << "element " << i << ": " << got[i] << " instead of " << wanted.values[i];
}

std::vector<float> pack(const Case& c, const WeightLayout& layout, const std::vector<float>& w) {
  std::vector<float> packed(layout.elements, std::numeric_limits<float>::quiet_NaN());
  for (int o = 0; o < c.co; ++o)
    for (int tap = 0; tap < 9; ++tap)
      for (int i = 0; i < c.ci; ++i)
        packed[layout.offset(o, tap, i)] = w[weight_index(c, o, tap, i)];
  return packed;
}

bool same_bytes(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

bool served() { return simd_convolution_serves({4, 4, 16, 16}, 3, 1); }

class SimdConvolution : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!served()) GTEST_SKIP() << "compiled for vectors of fewer than 8 floats";
  }
  const Case c_ = GetParam();
  const std::vector<float> x_ = random_values(c_.pixels() * c_.ci, 1);
  const std::vector<float> dy_ = random_values(c_.pixels() * c_.co, 2);
  const std::vector<float> w_ = random_values(c_.weights(), 3);
};

/// `shape` over all images at once; results, and scratch full of NaN, between guards.
template <class T>
std::vector<T> convolve(const SimdShape& shape, int images, const std::vector<T>& x,
                        const std::vector<T>& packed) {
  Guarded scratch(simd_convolution_scratch_bytes<T>(shape, images) / sizeof(float));
  std::vector<T> out(images * shape.h * shape.w * shape.co + 2 * kGuard, T(7.0f));
  simd_convolution(shape, images, x.data(), packed.data(), out.data() + kGuard, scratch.data());
  EXPECT_TRUE(scratch.guards_untouched());
  const auto untouched = [](T value) { return static_cast<float>(value) == 7.0f; };
  EXPECT_TRUE(std::all_of(out.begin(), out.begin() + kGuard, untouched));
  EXPECT_TRUE(std::all_of(out.end() - kGuard, out.end(), untouched));
  return {out.begin() + kGuard, out.end() - kGuard};
}

/// In FP32 on memory that begins `shift` floats past a cache line.
std::vector<float> convolve_shifted(const SimdShape& shape, int images, const std::vector<float>& x,
                                    const std::vector<float>& packed, std::size_t shift) {
  Guarded in(x, shift), weights(packed, shift), out(images * shape.h * shape.w * shape.co, shift);
  simd_convolution(shape, images, in.data(), weights.data(), out.data(), nullptr);
  EXPECT_TRUE(out.guards_untouched());
  return out.values();
}

TEST_P(SimdConvolution, ForwardMatchesTheDoubleLoop) {
  const auto packed = pack(c_, simd_forward_layout(c_.ci, c_.co, Dtype::f32), w_);
  const auto y = convolve_shifted(c_.shape(), c_.n, x_, packed, 0);
  expect_close(y, naive_forward(c_, x_, w_));
  EXPECT_TRUE(same_bytes(y, convolve_shifted(c_.shape(), c_.n, x_, packed, 1)));
}

TEST_P(SimdConvolution, FlippedLayoutGivesTheInputGradient) {
  const auto packed = pack(c_, simd_backward_data_layout(c_.ci, c_.co, Dtype::f32), w_);
  const auto dx = convolve({c_.h, c_.w, c_.co, c_.ci}, c_.n, dy_, packed);
  expect_close(dx, naive_backward_data(c_, dy_, w_));
}

/// Of 16-bit operands: the FP32 result of their values, rounded once.
template <class T>
void expect_rounded(const Case& c, const std::vector<float>& x, const std::vector<float>& w) {
  const std::vector<T> narrow_x(x.begin(), x.end());
  const auto packed = pack(c, simd_forward_layout(c.ci, c.co, Dtype::f32), w);
  const std::vector<T> narrow_packed(packed.begin(), packed.end());
  const auto wide = convolve(c.shape(), c.n, std::vector<float>(narrow_x.begin(), narrow_x.end()),
                             {narrow_packed.begin(), narrow_packed.end()});
  const auto y = convolve(c.shape(), c.n, narrow_x, narrow_packed);
  for (std::size_t i = 0; i < y.size(); ++i)
    ASSERT_EQ(static_cast<float>(y[i]), static_cast<float>(T(wide[i]))) << "element " << i;
}

TEST_P(SimdConvolution, SixteenBitsAreRoundedOnce) {
  expect_rounded<Bf16>(c_, x_, w_);
  expect_rounded<F16>(c_, x_, w_);
}

TEST_P(SimdConvolution, AnImageDoesNotDependOnItsSlice) {
  const auto packed = pack(c_, simd_forward_layout(c_.ci, c_.co, Dtype::f32), w_);
  const auto whole = convolve(c_.shape(), c_.n, x_, packed);
  const auto image_x = x_.size() / c_.n, image_y = whole.size() / c_.n;
  for (int n = 0; n < c_.n; ++n) {
    const std::vector<float> image(x_.begin() + n * image_x, x_.begin() + (n + 1) * image_x);
    const std::vector<float> wanted(whole.begin() + n * image_y, whole.begin() + (n + 1) * image_y);
    EXPECT_TRUE(same_bytes(convolve(c_.shape(), 1, image, packed), wanted)) << "image " << n;
  }
}

/// All pieces, with scratch between guards and full of NaN.
template <class T>
std::vector<float> weight_gradient(const Case& c, const std::vector<T>& x,
                                   const std::vector<T>& dy) {
  Guarded dw(c.weights());
  for (int co = 0; co < c.co; co += kSimdChannels)
    for (int ci = 0; ci < c.ci; ci += kSimdChannels) {
      Guarded scratch(simd_weight_gradient_scratch_bytes(c.shape()) / sizeof(float));
      simd_weight_gradient(c.shape(), c.n, co, ci, x.data(), dy.data(), dw.data(), scratch.data());
      EXPECT_TRUE(scratch.guards_untouched());
    }
  EXPECT_TRUE(dw.guards_untouched());
  return dw.values();
}

TEST_P(SimdConvolution, WeightGradientMatchesTheDoubleLoop) {
  expect_close(weight_gradient(c_, x_, dy_), naive_weight_gradient(c_, x_, dy_));
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
  const auto whole = weight_gradient(c_, x_, dy_);
  const int co = c_.co - kSimdChannels, ci = c_.ci - kSimdChannels;
  std::vector<float> dw(c_.weights(), 7.0f);
  std::vector<float> scratch(simd_weight_gradient_scratch_bytes(c_.shape()) / sizeof(float));
  simd_weight_gradient(c_.shape(), c_.n, co, ci, x_.data(), dy_.data(), dw.data(), scratch.data());
  for (int o = 0; o < c_.co; ++o)
    for (int tap = 0; tap < 9; ++tap)
      for (int i = 0; i < c_.ci; ++i) {
        const auto at = weight_index(c_, o, tap, i);
        ASSERT_EQ(dw[at], o >= co && i >= ci ? whole[at] : 7.0f) << o << ' ' << tap << ' ' << i;
      }
}

INSTANTIATE_TEST_SUITE_P(Shapes, SimdConvolution,
                         testing::Values(Case{1, 32, 32, 16, 32}, Case{2, 32, 32, 32, 32},
                                         Case{1, 16, 16, 64, 64}, Case{5, 8, 8, 128, 128},
                                         Case{3, 1, 1, 16, 16}, Case{3, 5, 7, 48, 16},
                                         Case{1, 7, 5, 16, 48}, Case{3, 4, 4, 32, 80},
                                         Case{2, 1, 9, 16, 32}, Case{2, 9, 1, 32, 16},
                                         Case{3, 2, 2, 48, 48}, Case{1, 3, 300, 16, 16},
                                         Case{3, 13, 15, 16, 64}, Case{3, 70, 3, 16, 16}),
                         [](const auto& info) {
                           const Case& c = info.param;
                           return concat(c.n, "x", c.h, "x", c.w, "_", c.ci, "to", c.co);
                         });

TEST(SimdConvolutionSupport, NamesWhatItServes) {
  EXPECT_EQ(simd_convolution_serves({32, 32, 16, 48}, 3, 1),
            std::string(simd_convolution_vectors()) != "none");
  EXPECT_FALSE(simd_convolution_serves({32, 32, 3, 16}, 3, 1));
  EXPECT_FALSE(simd_convolution_serves({32, 32, 16, 24}, 3, 1));
  EXPECT_FALSE(simd_convolution_serves({32, 32, 16, 16}, 3, 2));
  EXPECT_FALSE(simd_convolution_serves({32, 32, 16, 16}, 1, 1));
  float value = 0;
  EXPECT_THROW(simd_convolution({4, 4, 3, 16}, 1, &value, &value, &value, &value), Error);
  EXPECT_THROW(simd_weight_gradient({4, 4, 16, 3}, 1, 0, 0, &value, &value, &value, &value), Error);
}

TEST(SimdConvolutionSupport, LayoutsAreDense) {
  for (const auto& layout :
       {simd_forward_layout(48, 32, Dtype::f32), simd_backward_data_layout(48, 32, Dtype::f32)}) {
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

// Convolutions that read non-zeros alone, beside the dense kernels with zeros: the same bytes.
#include "backends/cpu/sparse_convolution.h"

#include <gtest/gtest.h>

#include "backends/cpu/simd_convolution.h"
#include "core/error.h"
#include "tests/convolution_kernels_testing.h"

namespace memfloor::cpu {
namespace {

constexpr SlicePass kPasses[] = {SlicePass::forward, SlicePass::backward_data};

/// Weights (Co, 9, Ci) of which so many are not zero.
std::vector<float> sparse_values(const Case& c, double density) {
  std::vector<float> w = random_values(c.w_size(), 3);
  std::mt19937 engine(4);
  std::bernoulli_distribution stored(density);
  for (float& value : w)
    if (!stored(engine)) value = 0;
  return w;
}

template <class Body>
void for_weights(const Case& c, Body&& body) {
  for (int o = 0; o < c.co; ++o)
    for (int t = 0; t < c.taps(); ++t)
      for (int i = 0; i < c.ci; ++i) body(o, t, i, weight_index(c, o, t, i));
}

std::vector<float> dense_packed(const Case& c, SlicePass pass, const std::vector<float>& w) {
  const WeightLayout layout = simd_weights(c.descriptor(), pass);
  std::vector<float> packed(layout.elements);
  for_weights(c,
              [&](int o, int t, int i, std::size_t at) { packed[layout.offset(o, t, i)] = w[at]; });
  return packed;
}

/// The non-zeros in the kernel's layout, between guards whose values are NaN.
class Listed {
 public:
  Listed(const Case& c, SlicePass pass, const std::vector<float>& w)
      : layout_(sparse_convolution_layout(c.descriptor(), pass)) {
    std::vector<std::vector<NonZero>> cells(layout_.cells);
    std::int64_t count = 0;
    for_weights(c, [&](int o, int t, int i, std::size_t at) {
      if (w[at] == 0) return;
      cells.at(layout_.cell.offset(o, t, i))
          .push_back({w[at], static_cast<std::uint32_t>(layout_.offset.offset(o, t, i))});
      ++count;
    });
    const auto bytes = static_cast<std::size_t>(layout_.bytes(count));
    all_.assign(bytes / sizeof(float) + 2 * kGuard, std::numeric_limits<float>::quiet_NaN());
    void* const data = all_.data() + kGuard;
    std::uint32_t next = 0;
    for (std::int64_t cell = 0; cell < layout_.cells; ++cell) {
      layout_.starts(data)[cell] = next;
      for (const NonZero& entry : cells[cell]) layout_.entries(data)[next++] = entry;
    }
    layout_.starts(data)[layout_.cells] = next;
  }
  const NonZeroLayout& layout() const { return layout_; }
  const void* data() const { return all_.data() + kGuard; }

 private:
  NonZeroLayout layout_;
  std::vector<float> all_;
};

std::size_t out_size(const Case& c, SlicePass pass) {
  return pass == SlicePass::forward ? c.y_size() : c.x_size();
}

template <class T>
std::vector<T> in_values(const Case& c, SlicePass pass) {
  const auto values = random_values(pass == SlicePass::forward ? c.x_size() : c.y_size(), 1);
  return {values.begin(), values.end()};
}

/// A band; scratch full of NaN. What is not written stays 7.
template <class T>
std::vector<T> convolve(const Case& c, SlicePass pass, const std::vector<T>& in,
                        const Listed& weights, const Band& band = {}) {
  const auto d = c.descriptor(kDtype<T>);
  Guarded scratch(sparse_convolution_scratch_bytes(d, pass) / sizeof(float));
  std::vector<T> out(out_size(c, pass) + 2 * kGuard, T(7.0f));
  sparse_convolution(d, pass, Operand(in).data(), weights.layout(), weights.data(),
                     out.data() + kGuard, scratch.data(), band);
  EXPECT_TRUE(scratch.guards_untouched());
  const auto untouched = [](T value) { return static_cast<float>(value) == 7.0f; };
  EXPECT_TRUE(std::all_of(out.begin(), out.begin() + kGuard, untouched));
  EXPECT_TRUE(std::all_of(out.end() - kGuard, out.end(), untouched));
  return {out.begin() + kGuard, out.end() - kGuard};
}

template <class T>
std::vector<T> dense_convolve(const Case& c, SlicePass pass, const std::vector<T>& in,
                              const std::vector<float>& w) {
  const auto d = c.descriptor(kDtype<T>);
  std::vector<float> scratch(simd_convolution_scratch_bytes(d, pass) / sizeof(float));
  std::vector<T> out(out_size(c, pass));
  simd_convolution(d, pass, in.data(), dense_packed(c, pass, w).data(), out.data(), scratch.data());
  return out;
}

class SparseConvolution : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    for (const SlicePass pass : kPasses)
      if (!sparse_convolution_serves(c_.descriptor(), pass))
        GTEST_SKIP() << "compiled for vectors that don't divide these images";
  }
  const Case c_ = GetParam();
};

template <class T>
void expect_dense_bytes(const Case& c, SlicePass pass, double density) {
  const std::vector<float> w = sparse_values(c, density);
  const std::vector<T> in = in_values<T>(c, pass);
  EXPECT_TRUE(same_bytes(convolve(c, pass, in, Listed(c, pass, w)), dense_convolve(c, pass, in, w)))
      << "density " << density;
}

TEST_P(SparseConvolution, IsTheDenseOneAsBytes) {
  for (const SlicePass pass : kPasses)
    for (const double density : {0.0, 0.01, 0.2, 1.0}) {
      expect_dense_bytes<float>(c_, pass, density);
      expect_dense_bytes<Bf16>(c_, pass, density);
      expect_dense_bytes<F16>(c_, pass, density);
    }
}

TEST_P(SparseConvolution, BandsMakeTheWhole) {
  const auto d = c_.descriptor();
  for (const SlicePass pass : kPasses) {
    const bool forward = pass == SlicePass::forward;
    const Listed weights(c_, pass, sparse_values(c_, 0.2));
    const auto in = in_values<float>(c_, pass);
    const auto whole = convolve(c_, pass, in, weights);
    const std::int64_t height = forward ? d.out_height() : d.height;
    const std::int64_t width = forward ? d.out_width() : d.width;
    const std::int64_t channels = forward ? c_.co : c_.ci;
    std::vector<int> writers(whole.size());
    for (std::int64_t band = 0, bands = sparse_convolution_bands(d, pass); band < bands; ++band) {
      const auto out = convolve(c_, pass, in, weights, {band, bands});
      const Region mine = sparse_band_region(d, pass, {band, bands});
      for (std::size_t i = 0; i < out.size(); ++i) {
        const auto at = static_cast<std::int64_t>(i);
        const std::int64_t row = at / channels / width % height, channel = at % channels;
        const bool inside = row >= mine.first_row && row < mine.last_row &&
                            channel >= mine.first_channel && channel < mine.last_channel;
        writers[i] += inside;
        ASSERT_EQ(out[i], inside ? whole[i] : 7.0f) << "element " << i << ", band " << band;
      }
    }
    EXPECT_EQ(std::count(writers.begin(), writers.end(), 1),
              static_cast<std::ptrdiff_t>(writers.size()));
  }
}

/// WRN-28-2's own; images of one strip and of several; outputs of several chunks.
std::vector<Case> cases() {
  return {{1, 32, 32, 16, 32},       {2, 32, 32, 32, 32},        {1, 32, 32, 32, 64, 3, 2},
          {2, 16, 16, 64, 64},       {1, 16, 16, 64, 128, 3, 2}, {5, 8, 8, 128, 128},
          {1, 8, 16, 16, 32},        {2, 48, 8, 48, 16},         {3, 16, 32, 16, 16, 3, 2},
          {1, 64, 16, 16, 48, 3, 2}, {3, 16, 16, 96, 80}};
}

INSTANTIATE_TEST_SUITE_P(Shapes, SparseConvolution, testing::ValuesIn(cases()),
                         [](const auto& info) {
                           const Case& c = info.param;
                           return concat(c.n, "x", c.h, "x", c.w, "_", c.ci, "to", c.co, "_s",
                                         c.stride);
                         });

TEST(SparseConvolutionSupport, NamesWhatItServes) {
  const bool vectors = simd_convolution_serves({1, 32, 32, 32, 32, 3, 1});
  for (const SlicePass pass : kPasses) {
    for (const std::int64_t size : {32, 16, 8})
      EXPECT_EQ(sparse_convolution_serves({1, size, size, 32, 32, 3, 1}, pass), vectors) << size;
    for (const std::int64_t size : {32, 16})
      EXPECT_EQ(sparse_convolution_serves({1, size, size, 32, 64, 3, 2}, pass), vectors) << size;
    EXPECT_FALSE(sparse_convolution_serves({1, 32, 32, 32, 32, 1, 1}, pass));
    EXPECT_FALSE(sparse_convolution_serves({1, 32, 31, 32, 32, 3, 1}, pass));
    EXPECT_FALSE(sparse_convolution_serves({1, 31, 32, 32, 32, 3, 1}, pass));
    EXPECT_FALSE(sparse_convolution_serves({1, 1, 1, 32, 32, 3, 1}, pass));
    EXPECT_FALSE(sparse_convolution_serves({1, 31, 31, 32, 32, 3, 2}, pass));
    EXPECT_FALSE(sparse_convolution_serves({1, 32, 32, 32, 24, 3, 1}, pass));
  }
  float value = 0;
  EXPECT_THROW(
      sparse_convolution({1, 7, 7, 16, 16}, SlicePass::forward, &value, {}, &value, &value, &value),
      Error);
}

}  // namespace
}  // namespace memfloor::cpu

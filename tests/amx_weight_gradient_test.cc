// The AMX weight gradient against a double loop, and byte for byte across thread counts.
#include "backends/cpu/amx_weight_gradient.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace memfloor::cpu {
namespace {

constexpr std::size_t kGuard = 4096;
constexpr unsigned char kFill = 0xff;  // a NaN in f32 and in bf16

/// `bytes` of 0xff, 64-byte aligned, between guards of 0xff.
class Guarded {
 public:
  explicit Guarded(std::size_t bytes) : bytes_(bytes), all_(bytes + 2 * kGuard + 64, kFill) {
    void* start = all_.data() + kGuard;
    std::size_t space = bytes + 64;
    data_ = static_cast<unsigned char*>(std::align(64, bytes, start, space));
  }
  void* data() { return data_; }
  bool guards_untouched() const {
    for (const unsigned char* p = all_.data(); p != all_.data() + all_.size(); ++p)
      if ((p < data_ || p >= data_ + bytes_) && *p != kFill) return false;
    return true;
  }

 private:
  std::size_t bytes_;
  std::vector<unsigned char> all_;
  unsigned char* data_;
};

/// Exactly sized, so that the address sanitizer sees reads beyond the end.
std::vector<Bf16> random_values(std::size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<Bf16> values(count);
  for (Bf16& value : values) value = Bf16(normal(engine));
  return values;
}

struct Reference {
  std::vector<double> sums, magnitudes;  // (Co, k, k, Ci); of the terms' absolute values
};

Reference naive(const WeightGradientShape& s, const std::vector<Bf16>& x,
                const std::vector<Bf16>& dy) {
  const std::size_t count = static_cast<std::size_t>(s.co) * s.k * s.k * s.ci;
  Reference r{std::vector<double>(count), std::vector<double>(count)};
  const int pad = s.k / 2;
  for (int n = 0; n < s.n; ++n)
    for (int oy = 0; oy < s.out_h(); ++oy)
      for (int ox = 0; ox < s.out_w(); ++ox)
        for (int kh = 0; kh < s.k; ++kh)
          for (int kw = 0; kw < s.k; ++kw) {
            const int iy = oy * s.stride + kh - pad, ix = ox * s.stride + kw - pad;
            if (iy < 0 || iy >= s.h || ix < 0 || ix >= s.w) continue;
            const Bf16* g =
                &dy[((static_cast<std::size_t>(n) * s.out_h() + oy) * s.out_w() + ox) * s.co];
            const Bf16* v = &x[((static_cast<std::size_t>(n) * s.h + iy) * s.w + ix) * s.ci];
            for (int co = 0; co < s.co; ++co)
              for (int ci = 0; ci < s.ci; ++ci) {
                const double term = static_cast<double>(static_cast<float>(g[co])) *
                                    static_cast<double>(static_cast<float>(v[ci]));
                const std::size_t i =
                    ((static_cast<std::size_t>(co) * s.k + kh) * s.k + kw) * s.ci + ci;
                r.sums[i] += term;
                r.magnitudes[i] += std::fabs(term);
              }
          }
  return r;
}

void check(const WeightGradientShape& s) {
  SCOPED_TRACE("n " + std::to_string(s.n) + ", " + std::to_string(s.h) + " x " +
               std::to_string(s.w) + ", " + std::to_string(s.ci) + " -> " + std::to_string(s.co) +
               ", k " + std::to_string(s.k) + ", stride " + std::to_string(s.stride));
  const std::vector<Bf16> x = random_values(static_cast<std::size_t>(s.n) * s.h * s.w * s.ci, 1);
  const std::vector<Bf16> dy =
      random_values(static_cast<std::size_t>(s.n) * s.out_h() * s.out_w() * s.co, 2);
  const Reference reference = naive(s, x, dy);
  const std::size_t count = reference.sums.size();
  std::vector<unsigned char> of_one_thread;
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    Guarded dw(count * sizeof(float));
    Guarded scratch(static_cast<std::size_t>(amx_weight_gradient_scratch_bytes(s, threads)));
    float* const result = static_cast<float*>(dw.data());
    amx_weight_gradient(s, x.data(), dy.data(), result, scratch.data(), pool);
    ASSERT_TRUE(dw.guards_untouched()) << threads << " threads";
    ASSERT_TRUE(scratch.guards_untouched()) << threads << " threads";
    if (threads > 1) {
      ASSERT_EQ(std::memcmp(result, of_one_thread.data(), of_one_thread.size()), 0)
          << threads << " threads give other bytes than one";
      continue;
    }
    const unsigned char* bytes = static_cast<unsigned char*>(dw.data());
    of_one_thread.assign(bytes, bytes + count * sizeof(float));
    for (std::size_t i = 0; i < count; ++i)
      // Rounding errors of f32 sums add up like a random walk: far below this for wrong terms.
      ASSERT_NEAR(result[i], reference.sums[i], 1e-6 * reference.magnitudes[i] + 1e-30)
          << "element " << i;
  }
}

class AmxWeightGradient : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!amx_available()) GTEST_SKIP() << "no AMX bf16 on this machine (or MEMFLOOR_NO_AMX is set)";
  }
};

TEST_F(AmxWeightGradient, EqualsTheDefinitionForWideResNet) {
  for (const int n : {1, 2, 7}) {
    check({n, 32, 32, 3, 16, 3, 1});
    check({n, 32, 32, 16, 32, 3, 1});
    check({n, 32, 32, 32, 32, 3, 1});
    check({n, 32, 32, 32, 64, 3, 2});
    check({n, 16, 16, 64, 64, 3, 1});
    check({n, 16, 16, 64, 128, 3, 2});
    check({n, 8, 8, 128, 128, 3, 1});
    check({n, 32, 32, 16, 32, 1, 1});
    check({n, 32, 32, 32, 64, 1, 2});
    check({n, 16, 16, 64, 128, 1, 2});
  }
}

TEST_F(AmxWeightGradient, EqualsTheDefinitionForOddChannelsAndImages) {
  for (const int k : {1, 3})
    for (const int stride : {1, 2})
      for (const int n : {1, 5, 12})
        for (const int ci : {3, 5, 17})
          for (const int co : {10, 33})
            for (const auto& [h, w] : {std::pair(7, 7), {5, 12}, {9, 4}})
              check({n, h, w, ci, co, k, stride});
}

TEST_F(AmxWeightGradient, EqualsTheDefinitionForExtremeImages) {
  for (const int k : {1, 3})
    for (const int stride : {1, 2}) {
      check({1, 1, 1, 1, 1, k, stride});
      check({70, 1, 1, 16, 16, k, stride});
      check({3, 1, 40, 16, 48, k, stride});
      check({3, 40, 1, 48, 16, k, stride});
      check({2, 3, 71, 8, 8, k, stride});
      check({33, 8, 8, 16, 16, k, stride});
      check({2, 2, 2, 100, 200, k, stride});
    }
}

TEST_F(AmxWeightGradient, ScratchStaysSmallForLargeBatches) {
  const WeightGradientShape layers[] = {
      {100, 32, 32, 32, 32, 3, 1}, {100, 16, 16, 64, 64, 3, 1}, {100, 8, 8, 128, 128, 3, 1}};
  for (WeightGradientShape s : layers) {
    const std::int64_t bytes = amx_weight_gradient_scratch_bytes(s, 2);
    EXPECT_LE(bytes, 1 << 20);
    s.n = 10000;
    EXPECT_EQ(amx_weight_gradient_scratch_bytes(s, 2), bytes);
  }
}

TEST_F(AmxWeightGradient, RefusesOtherKernels) {
  EXPECT_ANY_THROW(amx_weight_gradient_scratch_bytes({1, 8, 8, 16, 16, 5, 1}, 1));
  EXPECT_ANY_THROW(amx_weight_gradient_scratch_bytes({1, 8, 8, 16, 16, 3, 3}, 1));
}

}  // namespace
}  // namespace memfloor::cpu

// What the tests of our own convolution kernels share: their operands, between guards.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <ostream>
#include <random>
#include <vector>

#include "backends/convolution.h"

namespace memfloor::cpu {

inline constexpr std::size_t kGuard = 1024;  // floats

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

/// A copy of what a kernel reads, between guards of NaN: one that reads more carries it into sums.
/// (Our convolution kernels are built without sanitizers, see CMakeLists.txt.)
template <class T>
class Operand {
 public:
  explicit Operand(const std::vector<T>& values)
      : all_(values.size() + 2 * kGuard, T(std::numeric_limits<float>::quiet_NaN())) {
    std::copy(values.begin(), values.end(), all_.begin() + kGuard);
  }
  const T* data() const { return all_.data() + kGuard; }

 private:
  std::vector<T> all_;
};

inline std::vector<float> random_values(std::size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

struct Case {
  int n, h, w, ci, co;
  int kernel = 3, stride = 1;

  ConvolutionDescriptor descriptor(Dtype dtype = Dtype::f32) const {
    return {n, h, w, ci, co, kernel, stride, dtype};
  }
  std::int64_t taps() const { return static_cast<std::int64_t>(kernel) * kernel; }
  std::size_t x_size() const { return static_cast<std::size_t>(n) * h * w * ci; }
  std::size_t y_size() const {
    const auto d = descriptor();
    return static_cast<std::size_t>(n * d.out_height() * d.out_width() * co);
  }
  std::size_t w_size() const { return static_cast<std::size_t>(taps() * ci * co); }
};

inline std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.n << " images " << c.h << " x " << c.w << ", " << c.ci << " to " << c.co
             << ", kernel " << c.kernel << ", stride " << c.stride;
}

inline std::size_t weight_index(const Case& c, int o, std::int64_t tap, int i) {
  return static_cast<std::size_t>((o * c.taps() + tap) * c.ci + i);
}

template <class T>
bool same_bytes(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <class T>
constexpr Dtype kDtype = std::is_same_v<T, float>  ? Dtype::f32
                         : std::is_same_v<T, Bf16> ? Dtype::bf16
                                                   : Dtype::f16;

}  // namespace memfloor::cpu

// What the tests of single ops share: numbers, memory as an op gets it, and finite differences.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "core/ledger.h"
#include "tests/torch_reference.h"

namespace memfloor::testing {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

// Sizes of parts that a sample is computed in, where its bits must not depend on them.
inline constexpr std::int64_t kParts[] = {2, 3, 5, 7, 10};

// Numbers in [-scale, scale), different for every stream.
inline Floats numbers(std::int64_t count, std::uint32_t stream, float scale = 1) {
  return filled(Fill{stream, 0, scale}, static_cast<std::size_t>(count));
}

inline double dot(const Floats& a, const Floats& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}
inline double norm(const Floats& a) { return std::sqrt(dot(a, a)); }

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

// The largest relative error of rounding to a format.
inline float unit_of(Dtype dtype) {
  return dtype == Dtype::f32 ? 0x1p-24f : dtype == Dtype::f16 ? 0x1p-11f : 0x1p-8f;
}

inline Floats rounded(const Floats& values, Dtype dtype) {
  return Buffer(values, dtype).read(dtype);
}

// Expects <gradient, direction> to be the derivative of `loss` at `x` along random directions.
// Fourth-order central differences; the error is compared with |gradient| |direction|, which a
// wrong element of a gradient moves far beyond `tolerance`.
inline void expect_derivative(const std::function<double(const Floats&)>& loss, const Floats& x,
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

inline std::shared_ptr<Backend> backend() {
  static const std::shared_ptr<Backend> shared = make_cpu_backend(2);
  return shared;
}

}  // namespace memfloor::testing

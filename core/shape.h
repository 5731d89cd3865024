// The shape of a dense tensor: up to four extents, outermost first.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>

#include "core/error.h"

namespace memfloor {

class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents) {
    MEMFLOOR_CHECK(extents.size() <= kMaxRank, "a tensor has at most 4 dimensions");
    for (std::int64_t extent : extents) {
      MEMFLOOR_CHECK(extent >= 0, "a tensor's extent is negative: ", extent);
      extents_[rank_++] = extent;
    }
  }

  int rank() const { return rank_; }
  std::int64_t operator[](int axis) const { return extents_[axis]; }
  const std::int64_t* begin() const { return extents_.data(); }
  const std::int64_t* end() const { return extents_.data() + rank_; }

  std::int64_t elements() const {
    std::int64_t product = 1;
    for (std::int64_t extent : *this) product *= extent;
    return product;
  }

  bool operator==(const Shape&) const = default;

 private:
  std::array<std::int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

/// "(100, 32, 32, 16)"
inline std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << '(';
  for (int axis = 0; axis < shape.rank(); ++axis) out << (axis ? ", " : "") << shape[axis];
  return out << ')';
}

}  // namespace memfloor

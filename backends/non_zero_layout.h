// How a kernel that reads only the non-zeros of compressed weights wants them.
//
// Non-zeros that it reads one after another share a cell; cells are numbered in the order in which
// it reads them. A cell holds its non-zeros in canonical order (see weight_layout.h), each as its
// FP32 value and an offset of the kernel's own. Where each cell begins stands before them. Outputs
// of different sixteens share no cell, so that threads can fill cells side by side.
#pragma once

#include "backends/weight_layout.h"

namespace memfloor {

struct NonZero {
  float value;
  std::uint32_t offset;
};

struct NonZeroLayout {
  WeightPlaces cell, offset;  // of weight (o, t, i)
  std::int64_t cells = 0;     // 0: the kernel reads dense weights only

  std::int64_t outputs() const { return cell.outputs(); }
  /// Of the table of beginnings: one a cell, and the end.
  std::int64_t starts_bytes() const { return (4 * (cells + 1) + 63) / 64 * 64; }
  std::int64_t bytes(std::int64_t non_zeros) const {
    return starts_bytes() + non_zeros * static_cast<std::int64_t>(sizeof(NonZero));
  }
  std::uint32_t* starts(void* packed) const { return static_cast<std::uint32_t*>(packed); }
  const std::uint32_t* starts(const void* packed) const {
    return static_cast<const std::uint32_t*>(packed);
  }
  NonZero* entries(void* packed) const {
    return reinterpret_cast<NonZero*>(static_cast<char*>(packed) + starts_bytes());
  }
  const NonZero* entries(const void* packed) const {
    return reinterpret_cast<const NonZero*>(static_cast<const char*>(packed) + starts_bytes());
  }
};

/// Weights as they were packed for a kernel: dense, or their non-zeros alone.
struct PackedWeights {
  PackedWeights(const void* weights, bool only_non_zeros = false)
      : data(weights), non_zeros(only_non_zeros) {}

  const void* data;
  bool non_zeros;
};

}  // namespace memfloor

// Inputs of the known answers in tests/data: weights, images and output gradients are not stored
// there but computed by a formula, here exactly as in tests/make_torch_dumps.py, which made the
// answers with PyTorch. tests/data/README.md names the tensors of each file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace memfloor::testing {

// MurmurHash3's 32-bit finaliser.
constexpr std::uint32_t mix(std::uint32_t h) {
  h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
  h = (h ^ (h >> 13)) * 0xC2B2AE35u;
  return h ^ (h >> 16);
}

// A tensor's formula, as a file's `<name>.fill` gives it (F64: stream, offset, scale).
struct Fill {
  std::uint32_t stream = 0;
  float offset = 0;
  float scale = 1;

  static constexpr Fill from_row(const double* row) {
    return {static_cast<std::uint32_t>(row[0]), static_cast<float>(row[1]),
            static_cast<float>(row[2])};
  }

  // Value at a flat index of the tensor in PyTorch's order: weights (O, I, H, W) or (O, I), images
  // and activations (N, C, H, W). With u = ((hash >> 8) - 2^23) * 2^-23 in [-1, 1), an exact
  // float32, the value is offset + scale * u in float32. Where offset is not 0, scale is a power
  // of two: the product is exact, so contraction to a fused multiply-add changes no bit.
  constexpr float operator()(std::uint32_t element) const {
    const std::uint32_t hash = mix(stream * 0x9E3779B9u + element);
    const std::int32_t k = static_cast<std::int32_t>(hash >> 8) - (1 << 23);
    return offset + scale * (static_cast<float>(k) * 0x1p-23f);
  }
};

// The first `count` elements in PyTorch's order.
inline std::vector<float> filled(const Fill& fill, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = fill(static_cast<std::uint32_t>(i));
  return values;
}

// An answer with more than kWholeLimit elements is stored at kSampleSize of them.
inline constexpr std::size_t kWholeLimit = 4096;
inline constexpr std::size_t kSampleSize = 2048;

// Flat index, in PyTorch's order, of the i-th stored element of a tensor of `count` elements: one
// in each of kSampleSize equal cells, so they increase and none repeats.
constexpr std::size_t sample_position(std::size_t i, std::size_t count) {
  return i * count / kSampleSize + mix(static_cast<std::uint32_t>(i)) % (count / kSampleSize);
}

}  // namespace memfloor::testing

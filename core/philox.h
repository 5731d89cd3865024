// Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011). A draw is a pure function of (seed, purpose, counter): it
// never depends on how many numbers were drawn before, on threads, or on how a minibatch is cut.
#pragma once

#include <array>
#include <cstdint>

namespace memfloor {

/// What the numbers are for; draws of different purposes are independent. Values are part of the
/// reproducibility contract: never renumber, only append.
enum class Purpose : std::uint32_t {
  initial_weights = 1,
  shuffle = 2,
  augmentation = 3,
  synthetic_data = 4,
  stochastic_rounding = 5,
  sparse_pattern = 6,
  dropout = 7,
};

class Philox {
 public:
  using Words = std::array<std::uint32_t, 4>;

  Philox(std::uint32_t seed, Purpose purpose) : key_{seed, static_cast<std::uint32_t>(purpose)} {}

  /// Four random words for a counter, by convention (minibatch index, sample index in the
  /// minibatch, position, channel / head / layer).
  Words operator()(const Words& counter) const { return rounds(counter, key_); }

  /// The bare function, for the published test vectors.
  static Words rounds(Words counter, std::array<std::uint32_t, 2> key) {
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t a = 0xD2511F53ull * counter[0], b = 0xCD9E8D57ull * counter[2];
      counter = {
          static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
          static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
      key[0] += 0x9E3779B9u, key[1] += 0xBB67AE85u;
    }
    return counter;
  }

 private:
  std::array<std::uint32_t, 2> key_;
};

/// Uniform in [0, 1), in steps of 2^-24.
inline float uniform(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

/// Uniform integer in [0, bound), bound > 0; the bias is below bound / 2^32.
inline std::uint32_t uniform_below(std::uint32_t word, std::uint32_t bound) {
  return static_cast<std::uint32_t>((static_cast<std::uint64_t>(word) * bound) >> 32);
}

/// Two independent standard normals from two words (Box-Muller, in double).
std::array<float, 2> normal_pair(std::uint32_t word0, std::uint32_t word1);

/// A bijection of [0, size) that needs no memory: item `index` of the shuffled order of `epoch`.
/// A Feistel network over the next power of four, walked until it falls inside.
class Permutation {
 public:
  Permutation(std::uint32_t seed, std::uint32_t epoch, std::int64_t size);
  std::int64_t operator()(std::int64_t index) const;

 private:
  Philox philox_;
  std::uint32_t epoch_;
  std::int64_t size_;
  int half_bits_;
};

}  // namespace memfloor

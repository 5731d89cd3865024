// Philox for sixteen counters at a time, which neighbours in a vector have.
#pragma once

#include <array>
#include <cstdint>

#include "backends/cpu/lanes.h"
#include "core/philox.h"

namespace memfloor::cpu {

/// The words of sixteen counters: lane l has `first` with l added to its word `counting`. Of the
/// four words of a counter come eight 16-bit numbers: 128 in all, in rows of sixteen neighbours.
struct PhiloxLanes {
  static constexpr int kNumbers = 8 * kLanes;

  PhiloxLanes(std::uint32_t seed, Purpose purpose, const Philox::Words& first, int counting) {
    for (int w = 0; w < 4; ++w)
      for (int lane = 0; lane < kLanes; ++lane)
        word[w][lane] =
            first[w] + (w == counting ? static_cast<std::uint32_t>(lane) : std::uint32_t{0});
    std::uint32_t key0 = seed, key1 = static_cast<std::uint32_t>(purpose);
    for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u)
      for (int lane = 0; lane < kLanes; ++lane) {
        const std::uint64_t a = 0xD2511F53ull * word[0][lane], b = 0xCD9E8D57ull * word[2][lane];
        word[0][lane] = static_cast<std::uint32_t>(b >> 32) ^ word[1][lane] ^ key0;
        word[1][lane] = static_cast<std::uint32_t>(b);
        word[2][lane] = static_cast<std::uint32_t>(a >> 32) ^ word[3][lane] ^ key1;
        word[3][lane] = static_cast<std::uint32_t>(a);
      }
  }

  /// Numbers below 2^16 for the part of row `index` (below 8) that begins at `lane`: of word index
  /// / 2 the lower half where `index` is even, else the upper half.
  PartBits row(int index, int lane) const {
    const auto words = load_as<PartBits>(word[index / 2] + lane);
    return index % 2 ? words >> 16 : words & 0xffffu;
  }

  alignas(64) std::uint32_t word[4][kLanes];
};

}  // namespace memfloor::cpu

// Philox for sixteen counters at a time, which neighbours in a vector have.
#pragma once

#include <array>
#include <cstdint>

#include "backends/cpu/lanes.h"
#include "core/philox.h"

namespace memfloor::cpu {

using PartLongs = std::uint64_t __attribute__((vector_size(4 * kPart)));

/// Products of the lower halves of a's elements with `factor`, without a shuffle.
inline PartLongs low_products(PartLongs a, std::uint32_t factor) {
#if defined(__AVX512F__)
  return reinterpret_cast<PartLongs>(
      _mm512_mul_epu32(reinterpret_cast<__m512i>(a), _mm512_set1_epi64(factor)));
#elif defined(__AVX2__)
  return reinterpret_cast<PartLongs>(
      _mm256_mul_epu32(reinterpret_cast<__m256i>(a), _mm256_set1_epi64x(factor)));
#else
  return (a & 0xffffffffu) * std::uint64_t{factor};
#endif
}

/// The words of sixteen counters: lane l has `first` with l added to its word `counting`. Of the
/// four words of a counter come eight 16-bit numbers: 128 in all, in rows of sixteen neighbours.
class PhiloxLanes {
 public:
  static constexpr int kNumbers = 8 * kLanes;

  PhiloxLanes(std::uint32_t seed, Purpose purpose, const Philox::Words& first, int counting) {
    for (int w = 0; w < 4; ++w)
      for (int lane = 0; lane < kLanes; ++lane)
        word_[w][lane] =
            first[w] + (w == counting ? static_cast<std::uint32_t>(lane) : std::uint32_t{0});
    for (int lane = 0; lane < kLanes; lane += kPart) {
      Counters even, odd;  // lanes; each word in the lower half of an element
      for (int w = 0; w < 4; ++w) {
        even[w] = load_as<PartLongs>(word_[w] + lane);
        odd[w] = even[w] >> 32;
      }
      run_rounds(even, seed, static_cast<std::uint32_t>(purpose));
      run_rounds(odd, seed, static_cast<std::uint32_t>(purpose));
      for (int w = 0; w < 4; ++w) {
        const PartLongs both = (even[w] & 0xffffffffu) | odd[w] << 32;
        std::memcpy(word_[w] + lane, &both, sizeof both);
      }
    }
  }

  /// Numbers below 2^16 for the part of row `index` (below 8) that begins at `lane`: of word index
  /// / 2 the lower half where `index` is even, else the upper half.
  PartBits row(int index, int lane) const {
    const auto words = load_as<PartBits>(word_[index / 2] + lane);
    return index % 2 ? words >> 16 : words & 0xffffu;
  }

 private:
  using Counters = PartLongs[4];

  // Philox::rounds(); what the upper halves hold changes nothing.
  static void run_rounds(Counters& c, std::uint32_t key0, std::uint32_t key1) {
    for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
      const PartLongs a = low_products(c[0], 0xD2511F53u), b = low_products(c[2], 0xCD9E8D57u);
      c[0] = (b >> 32) ^ c[1] ^ std::uint64_t{key0}, c[1] = b;
      c[2] = (a >> 32) ^ c[3] ^ std::uint64_t{key1}, c[3] = a;
    }
  }

  alignas(64) std::uint32_t word_[4][kLanes];
};

}  // namespace memfloor::cpu

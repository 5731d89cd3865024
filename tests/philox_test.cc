// Random numbers are part of the reproducibility contract: published vectors, then what we built
// on them.
#include "core/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "core/error.h"

namespace memfloor {
namespace {

using Words = Philox::Words;

// kat_vectors of Random123 1.14, the reference implementation of the paper.
TEST(Philox, MatchesThePublishedVectors) {
  EXPECT_EQ(Philox::rounds({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(Philox::rounds({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      Philox::rounds({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, KeyIsSeedThenPurpose) {
  EXPECT_EQ(Philox(7, Purpose::augmentation)({1, 2, 3, 4}), Philox::rounds({1, 2, 3, 4}, {7, 3}));
}

TEST(Uniform, CoversTheIntervalAndNeverReachesOne) {
  EXPECT_EQ(uniform(0), 0.0f);
  EXPECT_EQ(uniform(0xffffffff), 1.0f - 0x1p-24f);
  EXPECT_EQ(uniform_below(0xffffffff, 9), 8u);
  EXPECT_EQ(uniform_below(0, 9), 0u);
  std::vector<int> count(9);
  const Philox philox(1, Purpose::shuffle);
  for (std::uint32_t i = 0; i < 9000; ++i) ++count[uniform_below(philox({i, 0, 0, 0})[0], 9)];
  for (int n : count) EXPECT_NEAR(n, 1000, 150);  // five standard deviations
}

TEST(Normal, HasTheMomentsOfTheStandardNormal) {
  const Philox philox(1, Purpose::initial_weights);
  constexpr int kPairs = 100000;
  double sum[5] = {}, product = 0;
  for (std::uint32_t i = 0; i < kPairs; ++i) {
    const auto words = philox({i, 0, 0, 0});
    const auto pair = normal_pair(words[0], words[1]);
    product += static_cast<double>(pair[0]) * pair[1];
    for (double value : pair)
      for (int power = 1; power <= 4; ++power) sum[power] += std::pow(value, power);
  }
  // Five standard deviations of the mean of 200000 draws, whose variances are 1, 2, 15 and 96.
  const auto bound = [](double variance) { return 5 * std::sqrt(variance / (2 * kPairs)); };
  EXPECT_NEAR(sum[1] / (2 * kPairs), 0, bound(1));
  EXPECT_NEAR(sum[2] / (2 * kPairs), 1, bound(2));
  EXPECT_NEAR(sum[3] / (2 * kPairs), 0, bound(15));
  EXPECT_NEAR(sum[4] / (2 * kPairs), 3, bound(96));
  EXPECT_NEAR(product / kPairs, 0, bound(2));
}

TEST(Normal, IsFiniteAtTheEndsOfItsRange) {
  for (std::uint32_t word : {0u, 0xffffffffu})
    for (float value : normal_pair(word, word)) EXPECT_TRUE(std::isfinite(value));
}

TEST(Permutation, IsABijectionOfEverySize) {
  for (std::int64_t size : {1, 2, 3, 4, 5, 10, 1000, 50000}) {
    const Permutation order(3, 1, size);
    std::vector<bool> seen(size);
    for (std::int64_t i = 0; i < size; ++i) {
      const std::int64_t item = order(i);
      ASSERT_TRUE(item >= 0 && item < size) << item << " of " << size;
      ASSERT_FALSE(seen[item]) << item << " of " << size << " comes twice";
      seen[item] = true;
    }
  }
}

TEST(Permutation, DiffersByEpochAndBySeed) {
  constexpr int kSize = 1000;
  const Permutation order(1, 0, kSize), next_epoch(1, 1, kSize), next_seed(2, 0, kSize);
  int same_epoch = 0, same_seed = 0, fixed = 0;
  for (int i = 0; i < kSize; ++i) {
    same_epoch += order(i) == next_epoch(i);
    same_seed += order(i) == next_seed(i);
    fixed += order(i) == i;
  }
  // Each count is about Poisson with mean 1.
  EXPECT_LE(same_epoch, 8);
  EXPECT_LE(same_seed, 8);
  EXPECT_LE(fixed, 8);
}

TEST(Permutation, RefusesAnEmptySet) { EXPECT_THROW(Permutation(1, 0, 0), Error); }

}  // namespace
}  // namespace memfloor

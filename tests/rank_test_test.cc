// The Mann-Whitney U test against published and SciPy's values.
#include "suite/rank_test.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "suite/samples.h"

namespace memfloor {
namespace {

std::vector<double> range(int count, double first, double step = 1) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = first + step * i;
  return values;
}

// A sample of `a` values beside 1, 2, ..., b that wins exactly u of the a * b pairs.
std::vector<double> winning(int a, int b, int u) {
  std::vector<double> values;
  for (int i = 0; i < a; ++i) {
    const int wins = std::min(u, b);
    u -= wins;
    values.push_back(wins + 0.5 + 0.001 * i);
  }
  return values;
}

// Table I of Mann and Whitney (1947): the chance of a U of at most 0, 1, 2, ... where there is no
// difference, for samples of 4 and 4, and of 5 and 5; printed to three digits.
TEST(RankTest, AgreesWithThePublishedTable) {
  const std::pair<int, std::vector<double>> tables[] = {
      {4, {.014, .029, .057, .100, .171, .243, .343, .443}},
      {5, {.004, .008, .016, .028, .048, .075, .111, .155, .210, .274, .345, .421, .500}}};
  for (const auto& [n, chances] : tables)
    for (int u = 0; u < static_cast<int>(chances.size()); ++u) {
      const RankTest test = mann_whitney(winning(n, n, u), range(n, 1));
      EXPECT_EQ(test.u, u);
      EXPECT_TRUE(test.exact);
      EXPECT_NEAR(test.p_value, 2 * chances[static_cast<std::size_t>(u)], 0.0011) << n << ' ' << u;
    }
}

// scipy.stats.mannwhitneyu of SciPy 1.17.1; the first is the example of its documentation.
TEST(RankTest, AgreesWithSciPy) {
  const RankTest documented = mann_whitney({19, 22, 16, 29, 24}, {20, 11, 17, 12});
  EXPECT_EQ(documented.u, 17);
  EXPECT_TRUE(documented.exact);
  EXPECT_NEAR(documented.p_value, 0.1111111111111111, 1e-12);

  const RankTest larger = mann_whitney(range(20, 1, 0.01), range(20, 1.055, 0.01));
  EXPECT_EQ(larger.u, 105);
  EXPECT_TRUE(larger.exact);
  EXPECT_NEAR(larger.p_value, 0.009483607191205003, 1e-12);

  const RankTest ties = mann_whitney({1, 2, 2, 3, 5, 8}, {2, 4, 5, 6, 9, 9, 10});
  EXPECT_EQ(ties.u, 8.5);
  EXPECT_FALSE(ties.exact);
  EXPECT_NEAR(ties.p_value, 0.08388222384935279, 1e-12);

  const RankTest many = mann_whitney(range(60, 0), range(55, 10.5));
  EXPECT_EQ(many.u, 1225);
  EXPECT_FALSE(many.exact);
  EXPECT_NEAR(many.p_value, 0.017466219103968242, 1e-12);
}

TEST(RankTest, IsTwoSidedAndSymmetric) {
  const std::vector<double> a = range(7, 1), b = range(6, 3.5);
  EXPECT_EQ(mann_whitney(a, b).p_value, mann_whitney(b, a).p_value);
  EXPECT_EQ(mann_whitney(a, b).u + mann_whitney(b, a).u, 42);
}

TEST(RankTest, SaysNothingWhereThereIsNothingToSay) {
  EXPECT_EQ(mann_whitney({1, 1, 1, 1}, {1, 1, 1, 1, 1}).p_value, 1);
  EXPECT_EQ(mann_whitney({1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}).p_value, 1);
  EXPECT_EQ(mann_whitney({1}, {2}).p_value, 1);
  EXPECT_THROW(mann_whitney({}, {1}), Error);
}

TEST(RankTest, KnowsWhatSamplesOfASizeCanSay) {
  EXPECT_EQ(smallest_p_value(0, 5), 1);
  EXPECT_EQ(smallest_p_value(1, 1), 1);
  EXPECT_NEAR(smallest_p_value(3, 3), 0.1, 1e-12);      // 20 orders
  EXPECT_NEAR(smallest_p_value(4, 4), 2 / 70., 1e-12);  // 70 orders
  EXPECT_EQ(mann_whitney(range(4, 1), range(4, 9)).p_value, smallest_p_value(4, 4));
}

TEST(SampleSummary, HasTheMiddleForItsMedian) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median({}), 0);
}

TEST(SampleSummary, InterpolatesQuartiles) {
  const SampleSummary summary = summarize({4, 1, 3, 2});
  EXPECT_EQ(summary.count, 4u);
  EXPECT_EQ(summary.minimum, 1);
  EXPECT_EQ(summary.lower_quartile, 1.75);  // as numpy.quantile
  EXPECT_EQ(summary.median, 2.5);
  EXPECT_EQ(summary.upper_quartile, 3.25);
  EXPECT_EQ(summary.maximum, 4);
  EXPECT_EQ(summarize({7}).upper_quartile, 7);
  EXPECT_THROW(summarize({}), Error);
}

}  // namespace
}  // namespace memfloor

#include "suite/rank_test.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace memfloor {
namespace {

// Beyond, the normal approximation is right to a fraction of a percent.
constexpr std::size_t kLargestExact = 50;

// In how many of the orders of a + b different values `a` wins exactly u pairs, for u up to a * b.
// Of the last value: if it is a's it wins b pairs, else none.
std::vector<double> counts_of_u(std::size_t a, std::size_t b) {
  // counts[j][u] for the current number of a's values and j of b's.
  std::vector<std::vector<double>> counts(b + 1, std::vector<double>(a * b + 1, 0));
  for (auto& row : counts) row[0] = 1;
  for (std::size_t i = 1; i <= a; ++i)
    for (std::size_t j = 1; j <= b; ++j)
      for (std::size_t u = a * b + 1; u-- > 0;)
        counts[j][u] = (u >= j ? counts[j][u - j] : 0) + counts[j - 1][u];
  return counts[b];
}

double orders_of(std::size_t a, std::size_t b) {
  double orders = 1;
  for (std::size_t i = 1; i <= a; ++i)
    orders = orders * static_cast<double>(b + i) / static_cast<double>(i);
  return orders;
}

double exact_p_value(std::size_t a, std::size_t b, double u) {
  const std::vector<double> counts = counts_of_u(a, b);
  const double pairs = static_cast<double>(a * b);
  const auto least = static_cast<std::size_t>(std::min(u, pairs - u));
  double orders = 0;
  for (std::size_t i = 0; i <= least; ++i) orders += counts[i];
  return std::min(1.0, 2 * orders / orders_of(a, b));
}

}  // namespace

RankTest mann_whitney(const std::vector<double>& a, const std::vector<double>& b) {
  MEMFLOOR_CHECK(!a.empty() && !b.empty(), "a rank test needs values on both sides, not ", a.size(),
                 " and ", b.size());
  std::vector<std::pair<double, bool>> all;  // value, whether it is a's
  for (const double value : a) all.emplace_back(value, true);
  for (const double value : b) all.emplace_back(value, false);
  std::sort(all.begin(), all.end());

  double ranks = 0, ties = 0;  // sum of a's ranks; sum of t^3 - t over groups of t equal values
  for (std::size_t begin = 0; begin < all.size();) {
    std::size_t end = begin;
    while (end < all.size() && all[end].first == all[begin].first) ++end;
    const double rank = static_cast<double>(begin + 1 + end) / 2,
                 t = static_cast<double>(end - begin);
    for (std::size_t i = begin; i < end; ++i) ranks += all[i].second ? rank : 0;
    ties += t * t * t - t;
    begin = end;
  }
  const auto count_a = static_cast<double>(a.size()), count_b = static_cast<double>(b.size());
  RankTest test;
  test.u = ranks - count_a * (count_a + 1) / 2;
  test.exact = ties == 0 && std::max(a.size(), b.size()) <= kLargestExact;
  if (test.exact) {
    test.p_value = exact_p_value(a.size(), b.size(), test.u);
    return test;
  }
  const double count = count_a + count_b;
  const double variance = count_a * count_b / 12 * (count + 1 - ties / (count * (count - 1)));
  if (variance <= 0) return test;  // all values are equal
  const double distance = std::abs(test.u - count_a * count_b / 2) - 0.5;
  test.p_value = std::min(1.0, std::erfc(distance / std::sqrt(2 * variance)));
  return test;
}

double smallest_p_value(std::size_t a, std::size_t b) {
  return a == 0 || b == 0 ? 1 : std::min(1.0, 2 / orders_of(a, b));
}

}  // namespace memfloor

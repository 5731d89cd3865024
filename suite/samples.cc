#include "suite/samples.h"

#include <algorithm>

#include "core/error.h"

namespace memfloor {

double median(std::vector<double> values) {
  return values.empty() ? 0 : summarize(std::move(values)).median;
}

SampleSummary summarize(std::vector<double> values) {
  MEMFLOOR_CHECK(!values.empty(), "an empty sample has no median");
  std::sort(values.begin(), values.end());
  const auto quantile = [&](double share) {
    const double place = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
  };
  return {values.size(),  quantile(0.5),  quantile(0.25),
          quantile(0.75), values.front(), values.back()};
}

}  // namespace memfloor

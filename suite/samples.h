// What a sample of numbers, such as the seconds of steps, looks like.
#pragma once

#include <cstddef>
#include <vector>

namespace memfloor {

/// The middle value, or the mean of the middle two; 0 of none.
double median(std::vector<double> values);

/// Quartiles are interpolated linearly between ordered values.
struct SampleSummary {
  std::size_t count = 0;
  double median = 0, lower_quartile = 0, upper_quartile = 0, minimum = 0, maximum = 0;
};

/// Throws Error for an empty sample.
SampleSummary summarize(std::vector<double> values);

}  // namespace memfloor

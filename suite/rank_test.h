// Whether two samples differ, by the ranks of their values alone: the two-sided Mann-Whitney U test
// (H. B. Mann, D. R. Whitney, Annals of Mathematical Statistics 18, 1947). Times of steps are not
// normally distributed, and one slow step must not decide.
#pragma once

#include <cstddef>
#include <vector>

namespace memfloor {

struct RankTest {
  double u = 0;        // pairs in which the value of `a` is the larger; ties count one half
  double p_value = 1;  // two-sided: of a difference at least so large where there is none
  bool exact = false;  // else by the normal approximation, with corrections
};

/// Exact where there are no ties and at most 50 values on each side; else the normal approximation,
/// corrected for ties and continuity. Throws Error for an empty sample.
RankTest mann_whitney(const std::vector<double>& a, const std::vector<double>& b);

/// The smallest p value that samples of these sizes can have: 1 where one is empty.
double smallest_p_value(std::size_t a, std::size_t b);

}  // namespace memfloor

// Real training steps with a clock: of `memfloor step` and of the step cases of `memfloor bench`.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "suite/samples.h"
#include "suite/session.h"

namespace memfloor {

double seconds_of(const std::function<void()>& body);

/// How many steps are timed where nobody says: 20 of images, 5 of text, which take longer.
std::int64_t timed_steps_of(const RunSpec& spec);

class TimedSteps {
 public:
  /// Runs untimed what the predicted peaks come from, so that what is measured over the steps is
  /// all of the prediction, and then two minibatches to warm up.
  explicit TimedSteps(Session& session);

  /// Trains the next minibatch; seconds.
  double step();

  const std::vector<double>& seconds() const { return seconds_; }
  double terms_per_second() const { return median(rates_); }  // images or target tokens
  std::int64_t terms() const { return terms_; }               // of all timed steps

 private:
  Session& session_;
  std::int64_t next_ = 0, terms_ = 0;
  std::vector<double> seconds_, rates_;
};

}  // namespace memfloor

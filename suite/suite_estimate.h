// About how long the tasks of the suite take: what has been measured before in the folder of
// results, else the operations that the prediction counts, at the speed of a small matrix product.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "suite/suite_plan.h"

namespace memfloor {

class SuiteEstimate {
 public:
  /// Reads the results that there are in `folder` for how fast each model ran.
  explicit SuiteEstimate(const std::string& folder);

  /// Seconds, roughly; 0 for what is impossible.
  double seconds(const SuiteTask& task);
  /// The same on a machine of a fixed speed: equal everywhere, whatever has been measured.
  double cost(const SuiteTask& task);

 private:
  struct Workload {
    double operations_per_step = 0;  // of a training step, no technique on
    double evaluation_steps = 0;     // what an evaluation takes, in training steps
    std::int64_t minibatches_per_epoch = 1;
  };
  const Workload& workload(const RunSpec& spec);
  double operations(const SuiteTask& task);
  double speed(const RunSpec& spec);  // operations per second

  std::map<std::string, Workload> workloads_;      // by the name of the case without techniques
  std::map<std::string, double> measured_speeds_;  // by model, and by model and precision
  double machine_speed_ = 0;                       // of a matrix product; 0: not measured yet
};

}  // namespace memfloor

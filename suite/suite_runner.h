// Runs tasks of the suite, each in a process of its own.
#pragma once

#include <string>
#include <vector>

#include "suite/result_folder.h"
#include "suite/suite_estimate.h"

namespace memfloor {

struct SuiteOutcome {
  struct Failure {
    std::string name, reason;
  };
  std::int64_t ran = 0;
  std::vector<Failure> failed;
  bool interrupted = false;  // by SIGINT or SIGTERM
};

/// In the order given. At most `jobs` side by side, and nothing beside what is timed. Progress goes
/// to standard error. Throws, after the end of what runs, where the folder cannot be written any
/// more; whatever happens, no process is left behind.
SuiteOutcome run_tasks(const std::vector<SuiteTask>& tasks, const ResultFolder& folder,
                       SuiteEstimate& estimate, std::int64_t jobs);

}  // namespace memfloor

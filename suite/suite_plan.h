// What a run of the suite consists of: which commands on which cases, and where their results lie.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "suite/run_spec.h"

namespace memfloor {

/// One command on one case, and its result file.
struct SuiteTask {
  std::string command;  // predict, measure, step, timeline or train
  RunSpec spec;         // validated, unless it is impossible
  std::string name;     // "measure/model=wrn28_2/data=synthetic"
  std::string alias;    // the same with the kind of the case: "memory/model=wrn28_2/data=synthetic"
  std::string file;     // in the folder of results: "measure/model=wrn28_2,data=synthetic.json"
  std::int64_t steps = 0;  // that command step times
  std::string impossible;  // the sentence that says why; empty: it can run

  /// Nothing else may run beside what is timed.
  bool timed() const { return command == "step" || command == "train"; }
};

struct SuiteRequest {
  std::string level = "quick";      // a name of suite_levels()
  RunSpec spec;                     // as given on the command line
  std::set<std::string> given;      // its keys that were given
  std::vector<std::string> models;  // all, or the given one
  std::string filter;               // an extended regular expression; empty: everything
};

struct SuitePlan {
  std::vector<SuiteTask> tasks;    // what is timed comes last; no two have the same file
  std::vector<std::string> notes;  // what each model trains on, for people
};

const std::vector<std::string>& suite_levels();

/// Throws InputError for keys that the suite sets itself, for a data_dir without data, for a filter
/// that is no regular expression or matches nothing.
SuitePlan plan_suite(const SuiteRequest& request);

/// Every result folder's subfolders: the commands.
const std::vector<std::string>& suite_commands();

/// The spec keys that are settings of techniques: what the cases of one workload differ in.
const std::vector<std::string>& technique_keys();
/// Validated; all of them off.
RunSpec without_techniques(RunSpec spec);

/// The part `shard` of `shards` (from 1) of the tasks, in their order. The shards' sums of costs
/// are about equal, and which task is in which depends on nothing but names and costs.
std::vector<SuiteTask> shard_of(const std::vector<SuiteTask>& tasks,
                                const std::vector<double>& costs, std::int64_t shard,
                                std::int64_t shards);

}  // namespace memfloor

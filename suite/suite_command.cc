// memfloor suite run and memfloor suite summary.
#include <chrono>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "suite/command_line.h"
#include "suite/machine.h"
#include "suite/progress_line.h"
#include "suite/result.h"
#include "suite/suite_plan.h"
#include "suite/suite_runner.h"
#include "suite/suite_summary.h"

namespace memfloor {
namespace {

using nlohmann::json;

constexpr int kInterrupted = 130;  // as shells report SIGINT

// The tasks of a run, by what becomes of them.
struct Sorted {
  std::vector<SuiteTask> to_run, covered, impossible;
  std::vector<std::string> again;  // results that are there and do not count, with the reason
};

Sorted sort_tasks(const std::vector<SuiteTask>& tasks, const ResultFolder& folder) {
  Sorted sorted;
  for (const SuiteTask& task : tasks) {
    if (!task.impossible.empty()) {
      sorted.impossible.push_back(task);
      continue;
    }
    const std::optional<std::string> missing = folder.missing(task);
    if (missing && !missing->empty())
      sorted.again.push_back(concat(task.file, " is made again: ", *missing));
    (missing ? sorted.to_run : sorted.covered).push_back(task);
  }
  return sorted;
}

RunSpec machine_spec(const CommandLine& line) {
  RunSpec spec;
  spec.threads = line.spec.threads;
  return validated(spec);
}

std::string folder_name(const CommandLine& line, const json& environment) {
  if (line.suite.results.empty()) return "results/" + machine_name(environment);
  const std::filesystem::path path = line.suite.results;
  return path.has_filename() ? path.string() : path.parent_path().string();
}

json named(const std::vector<SuiteTask>& tasks) {
  json all = json::array();
  for (const SuiteTask& task : tasks)
    all.push_back({{"name", task.name}, {"reason", task.impossible}});
  return all;
}

std::string count_text(const Sorted& sorted) {
  const auto part = [](std::size_t count, const char* what) {
    return count == 0 ? std::string() : concat(", ", count, what);
  };
  return concat(sorted.to_run.size(), " to run", part(sorted.covered.size(), " there already"),
                part(sorted.impossible.size(), " impossible"));
}

int dry_run(const CommandLine& line, const Sorted& sorted, const ResultFolder& folder,
            SuiteEstimate& estimate) {
  json to_run = json::array();
  std::string text;
  double sum = 0;
  for (const SuiteTask& task : sorted.to_run) {
    const double seconds = estimate.seconds(task);
    sum += seconds;
    to_run.push_back({{"name", task.name}, {"file", task.file}, {"about_seconds", seconds}});
    text += concat("would run, about ", human_seconds(seconds), ": ", task.name, "\n");
  }
  json covered = json::array();
  for (const SuiteTask& task : sorted.covered) {
    covered.push_back({{"name", task.name}, {"file", task.file}});
    text += concat("there already: ", task.name, "\n");
  }
  for (const SuiteTask& task : sorted.impossible)
    text += concat("impossible: ", task.name, ": ", task.impossible, "\n");
  if (line.json)
    std::cout << json{{"folder", folder.path()},
                      {"to_run", to_run},
                      {"already_there", covered},
                      {"impossible", named(sorted.impossible)},
                      {"about_seconds", sum}}
                     .dump(2)
              << std::endl;
  else
    std::cout << text << count_text(sorted) << ", about " << human_seconds(sum) << ", into "
              << folder.path() << std::endl;
  return 0;
}

void report(const CommandLine& line, const Sorted& sorted, const SuiteOutcome& outcome,
            const json& summary, double seconds) {
  if (line.json) {
    json failed = json::array();
    for (const auto& [name, reason] : outcome.failed)
      failed.push_back({{"name", name}, {"reason", reason}});
    std::cout << to_text({{"summary", summary},
                          {"ran", outcome.ran},
                          {"already_there", sorted.covered.size()},
                          {"impossible", named(sorted.impossible)},
                          {"failed", failed},
                          {"seconds", seconds}})
              << std::endl;
    return;
  }
  std::cout << summary_text(summary);
  for (const SuiteTask& task : sorted.impossible)
    std::cout << "impossible: " << task.name << ": " << task.impossible << "\n";
  for (const auto& [name, reason] : outcome.failed)
    std::cout << "failed: " << name << ": " << reason << "\n";
  std::cout << outcome.ran << " ran in " << human_seconds(seconds) << ", " << sorted.covered.size()
            << " were there already, " << sorted.impossible.size() << " are impossible, "
            << outcome.failed.size() << " failed\n"
            << "results: " << summary["folder"].get<std::string>() << std::endl;
}

}  // namespace

int suite_run_command(const CommandLine& line) {
  const auto start = std::chrono::steady_clock::now();
  const SuiteFlags& flags = line.suite;
  SuitePlan plan = plan_suite({flags.level, line.spec, line.given, line.models, flags.filter});
  const json environment = ResultFolder("").environment_of(machine_spec(line));
  ResultFolder folder(folder_name(line, environment));
  SuiteEstimate estimate(folder.path());
  if (flags.shards > 1) {
    std::vector<double> costs;
    for (const SuiteTask& task : plan.tasks) costs.push_back(estimate.cost(task));
    plan.tasks = shard_of(plan.tasks, costs, flags.shard, flags.shards);
  }
  if (!flags.dry_run) folder.open(environment, flags.shards > 1);
  const Sorted sorted = sort_tasks(plan.tasks, folder);
  for (const std::string& note : plan.notes) std::cerr << note << "\n";
  for (const std::string& again : sorted.again) std::cerr << again << "\n";
  if (flags.dry_run) return dry_run(line, sorted, folder, estimate);

  for (const SuiteTask& task : sorted.covered)
    if (task.command == "train") folder.remove_snapshot(task);
  std::cerr << count_text(sorted) << ", into " << folder.path() << std::endl;
  const SuiteOutcome outcome = run_tasks(sorted.to_run, folder, estimate, flags.jobs);
  if (outcome.interrupted) {
    std::cerr << "memfloor: interrupted after " << outcome.ran << " of " << sorted.to_run.size()
              << "; the same command goes on from there" << std::endl;
    return kInterrupted;
  }
  report(line, sorted, outcome, suite_summary(folder.path()),
         std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return outcome.failed.empty() ? 0 : 1;
}

int suite_summary_command(const CommandLine& line) {
  const std::string folder = folder_name(line, ResultFolder("").environment_of(machine_spec(line)));
  if (!std::filesystem::is_directory(folder))
    throw InputError(concat("there is no folder '", folder, "'; name one with --results"));
  const json summary = suite_summary(folder);
  std::cout << (line.json ? to_text(summary) + "\n" : summary_text(summary)) << std::flush;
  return summary["unreadable"].empty() ? 0 : 1;
}

}  // namespace memfloor

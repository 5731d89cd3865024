// What the levels of the suite consist of, and how a run is cut into shards.
#include "suite/suite_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "suite/cases.h"
#include "tests/temporary_folder.h"

namespace memfloor {
namespace {

SuiteRequest request(const std::string& level, std::set<std::string> given = {},
                     RunSpec spec = {}) {
  return {level, std::move(spec), std::move(given), suite_models(), ""};
}

std::map<std::string, int> counts(const SuitePlan& plan) {
  std::map<std::string, int> by_command;
  for (const SuiteTask& task : plan.tasks) ++by_command[task.command];
  return by_command;
}

TEST(SuitePlan, QuickPredictsEverythingAndTimesWhatMatters) {
  const SuitePlan plan = plan_suite(request("quick"));
  std::map<std::string, int> wanted{{"timeline", 4}, {"measure", 6}, {"step", 10}, {"train", 3}};
  for (const Case& c : suite_cases({})) wanted["predict"] += c.kind == CaseKind::memory;
  EXPECT_EQ(counts(plan), wanted);
  EXPECT_TRUE(std::is_sorted(plan.tasks.begin(), plan.tasks.end(),
                             [](const auto& a, const auto& b) { return a.timed() < b.timed(); }));
  std::set<std::string> files;
  for (const SuiteTask& task : plan.tasks) EXPECT_TRUE(files.insert(task.file).second) << task.file;
}

TEST(SuitePlan, WholeTrainingsNeedData) {
  EXPECT_EQ(counts(plan_suite(request("full")))["train"], 0);
  RunSpec spec;
  spec.recipe = "paper";
  const SuitePlan plan = plan_suite(request("headline", {"data", "recipe"}, spec));
  int whole = 0;
  for (const SuiteTask& task : plan.tasks)
    if (task.command == "train" && task.spec.recipe == "paper") ++whole;
  EXPECT_EQ(whole, 7);  // three trials too
}

TEST(SuitePlan, KeysOfTrainingsAndOfOneModelGoWhereTheyBelong) {
  RunSpec spec;
  spec.batch_size = 50;
  spec.max_tokens = 2000;
  spec.max_steps = 7;
  const SuitePlan plan =
      plan_suite(request("quick", {"batch_size", "max_tokens", "max_steps"}, spec));
  for (const SuiteTask& task : plan.tasks) {
    EXPECT_EQ(task.impossible, "") << task.name;
    const bool images = task.spec.model == "wrn28_2";
    EXPECT_EQ(task.spec.batch_size, images ? 50 : 0);
    EXPECT_EQ(task.spec.max_tokens, images ? 0 : 2000);
    EXPECT_EQ(task.spec.max_steps == 7, task.command == "train") << task.name;
  }
}

TEST(SuitePlan, TakesTheLargestCorpusOfTheFolder) {
  const TemporaryFolder folder;
  for (const auto& [name, pairs] : {std::pair{"a", 10}, {"deeper/b", 200}, {"c", 30}}) {
    std::filesystem::create_directories(folder.path() / name);
    std::ofstream(folder.path() / name / "corpus.json")
        << "{\"splits\":{\"train\":{\"pairs\":" << pairs << "}}}";
  }
  RunSpec spec;
  spec.data_dir = folder.path().string();
  const SuitePlan plan = plan_suite(request("quick", {"data_dir"}, spec));
  EXPECT_EQ(plan.tasks.back().spec.data, "translation");
  EXPECT_EQ(plan.tasks.back().spec.data_dir, (folder.path() / "deeper/b").string());
}

TEST(SuitePlan, ShardsAreDisjointCompleteAndAboutEqual) {
  std::vector<SuiteTask> tasks;
  std::vector<double> costs;
  for (int i = 0; i < 40; ++i) {
    tasks.push_back({});
    tasks.back().name = std::to_string(i);
    costs.push_back(1 + i * i % 37);
  }
  const double mean = std::accumulate(costs.begin(), costs.end(), 0.0) / 3;
  std::set<std::string> seen;
  for (int shard = 1; shard <= 3; ++shard) {
    double sum = 0;
    for (const SuiteTask& task : shard_of(tasks, costs, shard, 3)) {
      EXPECT_TRUE(seen.insert(task.name).second);
      sum += costs[std::stoul(task.name)];
    }
    EXPECT_NEAR(sum, mean, 0.05 * mean);
  }
  EXPECT_EQ(seen.size(), tasks.size());
  EXPECT_TRUE(shard_of({}, {}, 2, 3).empty());
}

}  // namespace
}  // namespace memfloor

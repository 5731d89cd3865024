// The advisor on a small net: what it lists fits, and nothing that fits is better.
#include "suite/planner.h"

#include <gtest/gtest.h>

#include <set>

#include "core/error.h"
#include "suite/models.h"
#include "suite/predictor.h"
#include "suite/presets.h"

namespace memfloor {
namespace {

RunSpec small() {
  RunSpec spec;
  spec.model = "wrn10_1";
  spec.batch_size = 20;
  spec.threads = 1;
  return validated(spec);
}

std::int64_t predicted_peak(const RunSpec& spec) {
  const Prediction prediction =
      predict(validated(spec), *make_task(validated(spec), DataUse::sizes), make_cpu_backend(1));
  return std::max(prediction.training.peak_total, prediction.evaluation.peak_total);
}

TEST(Planner, ListsWhatFitsFromLowRiskToLittleWork) {
  const std::int64_t baseline = predicted_peak(small());
  for (const std::int64_t budget : {baseline, baseline / 3, baseline / 8}) {
    const std::vector<PlannedRun> runs = plan_for_budget(small(), budget);
    ASSERT_FALSE(runs.empty());
    for (std::size_t i = 0; i < runs.size(); ++i) {
      EXPECT_LE(runs[i].peak_bytes, budget);
      EXPECT_EQ(predicted_peak(runs[i].spec), runs[i].peak_bytes) << to_json(runs[i].spec).dump();
      if (i == 0) continue;
      EXPECT_GE(runs[i].accuracy_risk, runs[i - 1].accuracy_risk);
      EXPECT_LT(runs[i].relative_work, runs[i - 1].relative_work);
    }
  }
  // Where the baseline fits there is no reason to do anything else.
  const std::vector<PlannedRun> free = plan_for_budget(small(), baseline);
  ASSERT_EQ(free.size(), 1u);
  EXPECT_EQ(free[0].accuracy_risk, 0);
  EXPECT_EQ(free[0].relative_work, 1);
}

TEST(Planner, SaysTheSmallestPeakWhereNothingFits) {
  const std::vector<PlannedRun> runs = plan_for_budget(small(), 1000);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_GT(runs[0].peak_bytes, 1000);
  EXPECT_EQ(plan_for_budget(small(), runs[0].peak_bytes).at(0).peak_bytes, runs[0].peak_bytes);
}

TEST(Planner, RiskGrowsWithSparsityAndSmallParts) {
  RunSpec spec = small();
  spec.batch_size = spec.microbatch = 100;
  EXPECT_EQ(accuracy_risk(spec), 0);
  double last = 0;
  for (const double sparsity : {0.6, 0.7, 0.8, 0.9}) {
    spec.sparsity = sparsity;
    EXPECT_GT(accuracy_risk(spec), last);
    last = accuracy_risk(spec);
  }
  for (const std::int64_t part : {20, 10, 5, 2, 1}) {
    spec.microbatch = part;
    EXPECT_GT(accuracy_risk(spec), last);
    last = accuracy_risk(spec);
  }
}

// Hundreds of predictions of large vocabularies: some ten seconds, and minutes under sanitizers.
TEST(Planner, KnowsTranslation) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "takes minutes under the sanitizers; the plain build runs it";
#endif
  RunSpec spec;
  spec.model = "dynamic_conv1_1_16";
  spec.max_tokens = 200, spec.threads = 1;
  const std::vector<PlannedRun> runs = plan_for_budget(spec, 1000);
  ASSERT_EQ(runs.size(), 1u);  // nothing fits; the smallest
  EXPECT_GT(runs[0].peak_bytes, 1000);
  EXPECT_EQ(runs[0].spec.microbatch_tokens, 125);
  EXPECT_EQ(runs[0].spec.conv_impl, "direct");
  EXPECT_EQ(runs[0].spec.sparsity, 0.9);
}

TEST(Presets, SixteenCombinationsOfFourTechniques) {
  const std::vector<RunSpec> all = technique_combinations(validated(RunSpec{}));
  ASSERT_EQ(all.size(), 16u);
  std::set<std::string> names;
  for (const RunSpec& spec : all) names.insert(case_name(validated(spec)));
  EXPECT_EQ(names.size(), 16u);
  EXPECT_EQ(case_name(validated(all.front())), "model=wrn28_2/data=synthetic");
  RunSpec best;
  set_from_preset(best, "paper-best");
  EXPECT_EQ(case_name(validated(best)), case_name(validated(all.back())));
}

TEST(Presets, OtherKeysWinOverThem) {
  RunSpec spec;
  set_from_json(spec, {{"microbatch", 4}, {"preset", "paper-best"}}, "test");
  EXPECT_EQ(spec.microbatch, 4);
  EXPECT_EQ(spec.preset, "paper-best");
  EXPECT_EQ(spec.sparsity, find_preset("paper-best").settings["sparsity"].get<double>());
  EXPECT_THROW(set_from_json(spec, {{"preset", "fattest"}}, "test"), InputError);
}

}  // namespace
}  // namespace memfloor

// The headline reductions, predicted and measured on this machine, and that a budget of exactly the
// claimed peak suffices.
#include <gtest/gtest.h>

#include "core/ledger.h"
#include "suite/presets.h"
#include "tests/reference_net.h"

namespace memfloor::testing {
namespace {

constexpr double kBaselinePaperTotal = 399018584, kBaselinePeak = 402374488;

RunSpec preset(const std::string& name) {
  RunSpec spec;
  set_from_preset(spec, name);
  spec.threads = 2;
  return spec;
}

TEST(Reductions, PaperBestIsSixtyTimesLeanerInBothConventions) {
  const Prediction prediction = predict_session(preset("paper-best")).prediction;
  EXPECT_LE(60.7 * static_cast<double>(prediction.training.paper_total()), kBaselinePaperTotal);
  EXPECT_LE(60.7 * static_cast<double>(prediction.training.peak_total), kBaselinePeak);
  EXPECT_LE(60.7 * static_cast<double>(prediction.evaluation.peak_total), kBaselinePeak);
}

TEST(Reductions, LeanestIsAHundredTimesLeaner) {
  const Prediction prediction = predict_session(preset("leanest")).prediction;
  EXPECT_LE(100 * static_cast<double>(prediction.training.peak_total), kBaselinePeak);
  EXPECT_LE(100 * static_cast<double>(prediction.evaluation.peak_total), kBaselinePeak);
}

// Of the sixteen, one more technique never costs memory in the paper's convention.
TEST(Reductions, EveryTechniqueSavesWhateverElseIsOn) {
  std::vector<std::int64_t> totals;
  for (const RunSpec& spec : technique_combinations(RunSpec{}))
    totals.push_back(predict_session(spec).prediction.training.paper_total());
  ASSERT_EQ(totals.size(), 16u);
  for (std::size_t with = 0; with < 16; ++with)
    for (std::size_t technique = 1; technique < 16; technique *= 2)
      if (with & technique) {
        EXPECT_LT(totals[with], totals[with & ~technique]) << with << " " << technique;
      }
}

// A batch of 6 has the same peak as one of 100: parts of 2, three of them.
TEST(Reductions, TheClaimedPeakIsEnoughAndOneByteLessIsNot) {
  RunSpec spec = preset("leanest");
  const std::int64_t claimed = predict_session(spec).prediction.training.peak_total;
  spec.batch_size = 6;
  spec.memory_budget = claimed;
  Session session = open_session(spec);
  for (std::int64_t step = 0; step < 2; ++step)
    session.trainer->train({step, 0, 6 * step, 6}, 0.01f);
  session.trainer->move_pattern();
  session.trainer->evaluate({0, 2});
  EXPECT_EQ(session.trainer->training_record.peak_total, claimed);
  spec.memory_budget = claimed - 1;
  EXPECT_THROW(open_session(spec), BudgetExceeded);
}

}  // namespace
}  // namespace memfloor::testing

// All sixteen combinations of the techniques train: a small net on small synthetic images.
#include <gtest/gtest.h>

#include <cmath>

#include "suite/presets.h"
#include "tests/reference_net.h"

namespace memfloor::testing {
namespace {

constexpr int kUpdates = 60, kLast = 10;

// Mean loss over the last updates; the prediction holds, too.
double final_loss(RunSpec spec) {
  Session session = small_session(spec, 400, 20);
  double sum = 0;
  for (int update = 0; update < kUpdates; ++update) {
    const Totals totals =
        session.trainer->train({update, update / 20, update % 20 * 20, 20}, 0.05f);
    EXPECT_TRUE(std::isfinite(totals.loss)) << update;
    EXPECT_TRUE(totals.updated);
    if (update >= kUpdates - kLast) sum += totals.mean_loss() / kLast;
  }
  session.trainer->move_pattern();
  session.trainer->evaluate(session.task->evaluation_parts().front());
  EXPECT_EQ(prediction_difference(session.prediction, *session.trainer), "");
  return sum;
}

RunSpec small(RunSpec spec) {
  spec.model = "wrn10_1";
  spec.batch_size = 20;
  if (spec.microbatch == 0) spec.microbatch = 20;
  spec.threads = 2;
  return spec;
}

// Bits of a combination's number, in the order of technique_settings().
constexpr std::size_t kMicrobatching = 4, kCheckpointing = 8;

// Chance is a loss of 2.30. Batch norm over parts of 5 is another training, and slows this net
// down; the other techniques change little, checkpointing nothing at all.
TEST(Combinations, TrainLikeTheBaseline) {
  std::vector<double> losses;
  for (const RunSpec& spec : technique_combinations(RunSpec{})) {
    const std::size_t combination = losses.size();
    losses.push_back(final_loss(small(spec)));
    std::printf("  %s: loss %.3f\n", case_name(validated(small(spec))).c_str(), losses.back());
    EXPECT_NEAR(losses.back(), losses[0], combination & kMicrobatching ? 0.5 : 0.2) << combination;
    if (combination & kCheckpointing) {
      EXPECT_EQ(losses.back(), losses[combination & ~kCheckpointing]) << combination;
    }
  }
  ASSERT_EQ(losses.size(), 16u);
  EXPECT_LT(losses[0], 1.6);
}

TEST(Presets, LeanestTrains) {
  RunSpec spec;
  set_from_preset(spec, "leanest");
  EXPECT_LT(final_loss(small(spec)), 2.2);
}

}  // namespace
}  // namespace memfloor::testing

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
  session.trainer->evaluate(0, session.trainer->evaluation_part());
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

class Combinations : public ::testing::TestWithParam<std::size_t> {};

// Bits of the combination's number, in the order of technique_settings().
constexpr std::size_t kMicrobatching = 4, kCheckpointing = 8;

double loss_of(std::size_t combination) {
  return final_loss(small(technique_combinations(RunSpec{})[combination]));
}

// Chance is a loss of 2.30. Batch norm over parts of 5 is another training, and slows this net
// down; the other techniques change little, checkpointing nothing at all.
TEST_P(Combinations, TrainsLikeTheBaseline) {
  static const double baseline = loss_of(0);
  const double loss = loss_of(GetParam());
  std::printf("  loss %.3f, the baseline's %.3f\n", loss, baseline);
  EXPECT_LT(baseline, 1.6);
  EXPECT_NEAR(loss, baseline, GetParam() & kMicrobatching ? 0.5 : 0.2);
  if (GetParam() & kCheckpointing) {
    EXPECT_EQ(loss, loss_of(GetParam() & ~kCheckpointing));
  }
}

INSTANTIATE_TEST_SUITE_P(OnAndOff, Combinations, ::testing::Range<std::size_t>(0, 16));

TEST(Presets, LeanestTrains) {
  RunSpec spec;
  set_from_preset(spec, "leanest");
  EXPECT_LT(final_loss(small(spec)), 2.2);
}

}  // namespace
}  // namespace memfloor::testing

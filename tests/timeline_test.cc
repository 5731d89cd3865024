// The timeline of an update: every instant of the ledger's log, thinned without losing the peak.
#include "suite/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "suite/result.h"
#include "tests/small_translation.h"

namespace memfloor {
namespace {

using nlohmann::json;

RunSpec small(const std::string& model) {
  RunSpec spec;
  spec.model = model, spec.threads = 1;
  if (model.starts_with("wrn"))
    spec.batch_size = 20;
  else
    spec.max_tokens = 400, spec.sentence_length = 25;
  return spec;
}

std::set<std::string> stages_of(const std::vector<Instant>& instants) {
  std::set<std::string> stages;
  for (const Instant& instant : instants) stages.insert(instant.stage);
  return stages;
}

// Everything that must hold for a session's timeline.
void expect_right(const Session& session) {
  const MemoryRecord& training = session.prediction.training;
  const std::vector<Instant> instants = instants_of_update(session);
  ByteSplit highest{};
  const Instant* peak = &instants.front();
  for (std::size_t i = 0; i < instants.size(); ++i) {
    ASSERT_EQ(instants[i].event, static_cast<std::int64_t>(i));
    for (int c = 0; c < kCategoryCount; ++c)
      highest[c] = std::max(highest[c], instants[i].bytes[c]);
    if (instants[i].total() > peak->total()) peak = &instants[i];
  }
  EXPECT_EQ(highest, training.category_peak);
  EXPECT_EQ(peak->total(), training.peak_total);
  EXPECT_EQ(peak->bytes, training.at_peak);

  const std::vector<Instant> points = thinned(instants, 50);
  EXPECT_LE(points.size(), 50u);
  EXPECT_EQ(stages_of(points), stages_of(instants));
  EXPECT_GT(points.size(), 25u);
  EXPECT_EQ(points.front().event, 0);
  EXPECT_EQ(points.back().event, instants.back().event);
  bool peak_is_there = false;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (i > 0) {
      EXPECT_LT(points[i - 1].event, points[i].event);
    }
    const Instant& real = instants[static_cast<std::size_t>(points[i].event)];
    EXPECT_EQ(points[i].bytes, real.bytes);
    EXPECT_EQ(points[i].stage, real.stage);
    peak_is_there = peak_is_there || points[i].event == peak->event;
  }
  EXPECT_TRUE(peak_is_there);
}

TEST(Timeline, HasThePeaksOfThePrediction) {
  for (const char* model : {"wrn10_1", "dynamic_conv1_1_16"}) {
    SCOPED_TRACE(model);
    const Session session = predict_session(small(model));
    expect_right(session);
    const std::vector<Instant> instants = instants_of_update(session);
    EXPECT_EQ(stages_of(instants), (std::set<std::string>{"forward", "backward", "update"}));
    EXPECT_EQ(instants.front().stage, "forward");
    EXPECT_EQ(instants.back().stage, "update");
  }
}

TEST(Timeline, HasThePeaksOfThePredictionWithEveryTechnique) {
  for (const char* model : {"wrn10_1", "dynamic_conv1_1_16"}) {
    SCOPED_TRACE(model);
    RunSpec spec = small(model);
    spec.sparsity = 0.8, spec.precision = "bf16";
    if (spec.batch_size > 0)
      spec.microbatch = 5, spec.checkpoint = "normalization";
    else
      spec.microbatch_tokens = 100, spec.checkpoint = "blocks";
    const Session session = predict_session(spec);
    expect_right(session);
    const std::vector<Instant> instants = instants_of_update(session);
    EXPECT_EQ(instants.back().stage, "pattern update");
    // Four parts, each forward and backward.
    int forwards = 0;
    for (std::size_t i = 1; i < instants.size(); ++i)
      forwards += instants[i].stage == "forward" && instants[i - 1].stage == "backward";
    EXPECT_EQ(forwards, 3);
  }
}

// Minibatches that differ: the one with the peak is followed.
TEST(Timeline, FollowsTheDecisiveMinibatch) {
  const Session session =
      testing::translation_session(testing::translation_spec(), testing::kFewSentences);
  ASSERT_GT(session.prediction.decisive.size(), 1u);
  const std::vector<Instant> instants = instants_of_update(session);
  const auto peak =
      std::max_element(instants.begin(), instants.end(),
                       [](const Instant& a, const Instant& b) { return a.total() < b.total(); });
  EXPECT_EQ(peak->total(), session.prediction.training.peak_total);
  EXPECT_EQ(peak->bytes, session.prediction.training.at_peak);
}

TEST(Timeline, ThinningKeepsWhatIsFewAndTheFirstOfEqualPeaks) {
  std::vector<Instant> instants;
  for (std::int64_t i = 0; i < 10; ++i) {
    instants.push_back({i, "forward", {}});
    at(instants.back().bytes, Category::weight) = i == 4 || i == 6 ? 9 : 1;
  }
  EXPECT_EQ(thinned(instants, 10).size(), 10u);
  std::vector<std::int64_t> events;
  for (const Instant& point : thinned(instants, 3)) events.push_back(point.event);
  EXPECT_EQ(events, (std::vector<std::int64_t>{0, 4, 9}));
}

TEST(Timeline, IsPartOfAResult) {
  const Session session = predict_session(small("wrn10_1"));
  const json timeline = timeline_json(instants_of_update(session));
  const json memory = make_result("timeline", session, nullptr)["memory"];
  EXPECT_LE(timeline["points"].size(), 600u);
  bool peak_is_there = false;
  for (const json& point : timeline["points"]) {
    EXPECT_EQ(point["bytes"].size(), static_cast<std::size_t>(kCategoryCount));
    peak_is_there = peak_is_there || point["bytes"] == memory["at_peak"];
  }
  EXPECT_TRUE(peak_is_there);
  EXPECT_EQ(timeline["points"].back()["event"], timeline["events"].get<std::int64_t>() - 1);
}

}  // namespace
}  // namespace memfloor

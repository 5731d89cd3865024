// checkpoint "budget:BYTES": the plan found fits, nothing that recomputes less does, and what the
// search believes of a plan is what a prediction says.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "engine/dense_store.h"
#include "suite/checkpoint_search.h"
#include "techniques/registry.h"
#include "tests/reference_net.h"
#include "tests/temporary_folder.h"

namespace memfloor::testing {
namespace {

constexpr DataSize kData{100, 20};
constexpr std::int64_t kPart = 7;

struct Searched {
  explicit Searched(const char* precision)
      : spec(validated(small_spec(precision, 1))),
        task(spec, {16, 16, 3, 10}, kData, nullptr),
        backend(make_cpu_backend(1)),
        search(profile_chain(spec, task, backend)),
        null(make_null_backend(backend)),
        trainer(spec, task, *null, no_memory()) {}

  // Peak and cost of recomputation as a prediction of one part has them.
  std::pair<std::int64_t, std::int64_t> predicted(const SegmentTree& tree) {
    trainer.use_plan(std::make_unique<TreePlan>(tree));
    trainer.training_record = {};
    trainer.train({0, 0, 0, kPart}, 0);
    return {trainer.training_record.peak_total,
            recomputation_cost(trainer.work.recompute, trainer.work.recomputed_bytes)};
  }

  RunSpec spec;
  ImageTask task;
  std::shared_ptr<Backend> backend;
  CheckpointSearch search;
  std::unique_ptr<Backend> null;
  Trainer trainer;
};

// Of all 92160 trees one in so many is looked at. With 1 the test passes too, in half a minute.
#ifdef __SANITIZE_ADDRESS__
constexpr std::size_t kStride = 97;
#else
constexpr std::size_t kStride = 11;
#endif

// Every way to treat blocks [begin, end) of wrn10_1 at one level of a tree: runs of whole blocks or
// single units as segments, with anything like it inside. `whole`: one segment of all may be it.
constexpr std::size_t kBlockUnits[] = {0, 1, 3, 5, 7, 8};  // where blocks begin

std::vector<SegmentTree> all_levels(std::size_t begin, std::size_t end, bool whole) {
  static std::map<std::tuple<std::size_t, std::size_t, bool>, std::vector<SegmentTree>> known;
  std::vector<SegmentTree>& levels = known[{begin, end, whole}];
  if (!levels.empty()) return levels;
  if (begin == end) return levels = {{}};
  // Kept or a segment, a single unit that is only a convolution is the same.
  const bool stem = begin == 0;
  std::vector<SegmentTree> found;
  const auto with_rest = [&](const SegmentTree& head, std::size_t from) {
    for (const SegmentTree& rest : all_levels(from, end, true)) {
      found.push_back(head);
      found.back().insert(found.back().end(), rest.begin(), rest.end());
    }
  };
  const std::size_t first = kBlockUnits[begin], units = kBlockUnits[begin + 1] - first;
  for (std::size_t option = 0; option < (stem ? 1u : 1u << units); ++option) {
    SegmentTree head;
    for (std::size_t unit = first; unit < first + units; ++unit)
      if (option >> (unit - first) & 1) head.push_back({{unit, unit + 1}, {}});
    with_rest(head, begin + 1);
  }
  for (std::size_t middle = begin + 1; middle <= end; ++middle) {
    if (middle == end && !whole) continue;
    if (middle == begin + 1 && units == 1) continue;  // had that
    for (const SegmentTree& inner : all_levels(begin, middle, false))
      with_rest({{{first, kBlockUnits[middle]}, inner}}, middle);
  }
  return levels = std::move(found);
}

class Search : public ::testing::TestWithParam<const char*> {};

TEST_P(Search, PlansAreWhatPredictionsSay) {
  Searched searched(GetParam());
  const std::vector<CheckpointSearch::Plan> plans = searched.search.plans();
  ASSERT_GE(plans.size(), 5u);
  for (const CheckpointSearch::Plan& plan : plans)
    EXPECT_EQ(searched.predicted(plan.tree), std::pair(plan.peak, plan.cost)) << to_text(plan.tree);
  EXPECT_EQ(plans.front().cost, 0);
}

TEST_P(Search, NoPlanIsBetter) {
  Searched searched(GetParam());
  const std::vector<SegmentTree> trees = all_levels(0, 5, true);
  const std::vector<CheckpointSearch::Plan> plans = searched.search.plans();
  for (std::size_t i = 0; i < trees.size(); i += kStride) {
    const auto [peak, cost] = searched.predicted(trees[i]);
    // Falling peaks: the first that is not above this tree's costs least.
    const auto plan = std::find_if(plans.begin(), plans.end(),
                                   [peak = peak](const auto& p) { return p.peak <= peak; });
    ASSERT_TRUE(plan != plans.end() && plan->cost <= cost)
        << to_text(trees[i]) << " has a peak of " << peak << " for " << cost;
  }
}

TEST_P(Search, BudgetIsKeptAndTheSmallestPeakIsTold) {
  const Searched searched(GetParam());
  const auto found = [&](std::int64_t budget) {
    RunSpec spec = searched.spec;
    spec.checkpoint = concat("budget:", budget);
    return with_checkpoint_found(spec, searched.task, searched.backend);
  };
  const auto peak = [&](const RunSpec& spec) {
    return predict(spec, searched.task, searched.backend).training.peak_total;
  };
  const std::int64_t most = peak(searched.spec);
  // Where keeping everything fits, nothing is recomputed (a segment of the stem alone is for free).
  const MultiplyAdds work = predict(found(most), searched.task, searched.backend).work;
  EXPECT_EQ(work.recompute, 0);
  EXPECT_EQ(work.recomputed_bytes, 0);
  EXPECT_LT(peak(found(most - 1)), most);
  const std::int64_t least = searched.search.plans().back().peak;
  for (const std::int64_t budget : {(most + least) / 2, least})
    EXPECT_LE(peak(found(budget)), budget);
  EXPECT_EQ(peak(found(least)), least);
  const std::string refusal = error_of<InputError>([&] { found(least - 1); });
  EXPECT_NE(refusal.find(concat("is ", least, " bytes")), std::string::npos) << refusal;
}

INSTANTIATE_TEST_SUITE_P(, Search, ::testing::Values("fp32", "bf16_mixed"),
                         [](const auto& p) { return std::string(p.param); });

TEST(CheckpointBudget, OfWrn28_2TrainsToTheBytesOfKeepAll) {
  RunSpec spec;
  spec.batch_size = 4, spec.microbatch = 3, spec.threads = 2;
  const auto bytes = [&](const std::string& checkpoint) {
    spec.checkpoint = checkpoint;
    Session session = open_session(spec);
    session.trainer->train({0, 0, 0, 4}, 0.05f);
    EXPECT_EQ(session.notes.size(), checkpoint == "none" ? 0u : 1u);
    EXPECT_TRUE(checkpoint == "none" || session.trainer->training_record.peak_total <= 21000000);
    return state_bytes(*session.trainer);
  };
  EXPECT_TRUE(bytes("none") == bytes("budget:21MB"));
}

}  // namespace
}  // namespace memfloor::testing

// DSR, SET and their schedule against answers computed by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "core/bits.h"
#include "techniques/sparsity/dsr.h"
#include "techniques/sparsity/pattern_move.h"
#include "techniques/sparsity/set.h"

namespace memfloor::testing {
namespace {

// A network in which `below` layers' weights lie below any threshold.
PatternEvent event_of(std::vector<LayerCounts> layers, std::vector<std::int64_t> below,
                      std::int64_t step = 100, std::uint32_t seed = 1) {
  PatternEvent event;
  event.step = step;
  event.layers = std::move(layers);
  event.below = [below](std::size_t l, float) { return below[l]; };
  event.random = Philox(seed, Purpose::sparse_pattern);
  return event;
}

std::vector<std::int64_t> drops(const std::vector<LayerMove>& moves) {
  std::vector<std::int64_t> values;
  for (const LayerMove& move : moves) values.push_back(move.drop);
  return values;
}
std::vector<std::int64_t> grows(const std::vector<LayerMove>& moves) {
  std::vector<std::int64_t> values;
  for (const LayerMove& move : moves) values.push_back(move.grow);
  return values;
}
std::int64_t sum(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

const Dsr kDsr{RewireSchedule(RewireSchedule::kUpdates)};

TEST(DsrRule, TheTargetIsTwentyThousandOfWrn28_2) {
  EXPECT_EQ(rewire_target(1451520), 20000);
  EXPECT_EQ(rewire_target(725760), 10000);
  EXPECT_EQ(rewire_target(10), 1);
}

// 1,451,520 positions in two layers: the target is 20,000, its band 18,000 to 22,000.
TEST(DsrRule, TheThresholdIsHalvedAndDoubledOutsideTheBand) {
  const std::map<std::int64_t, float> expected{{0, 2.f},      {17999, 2.f}, {18000, 1.f},
                                               {20000, 1.f},  {22000, 1.f}, {22001, 0.5f},
                                               {300000, 0.5f}};
  for (const auto& [below, factor] : expected) {
    float threshold = 1e-3f;
    const std::vector<LayerMove> moves = kDsr.plan(
        event_of({{725760, 350000}, {725760, 350000}}, {below / 2, below - below / 2}), &threshold);
    EXPECT_EQ(threshold, 1e-3f * factor) << below;
    EXPECT_EQ(sum(drops(moves)), below);
  }
  float threshold = 0;
  EXPECT_EQ(kDsr.state_size(), 1);
  kDsr.initialize(&threshold);
  EXPECT_EQ(threshold, 1e-3f);
}

// 60 weights go; 100, 200 and 300 survive: 10, 20 and 30 grow.
TEST(DsrRule, GrowthIsProportionalToSurvivors) {
  float threshold = 1;
  const auto moves =
      kDsr.plan(event_of({{1000, 140}, {1000, 210}, {1000, 310}}, {40, 10, 10}), &threshold);
  EXPECT_EQ(drops(moves), (std::vector<std::int64_t>{40, 10, 10}));
  EXPECT_EQ(grows(moves), (std::vector<std::int64_t>{10, 20, 30}));
}

// Survivors 100, 200, 300 of 60 growing; the last layer has room for 6 only. The 24 left over are
// shared out 1 to 2: 8 and 16 more.
TEST(DsrRule, WhatAFullLayerCannotTakeIsSharedOutAgain) {
  float threshold = 1;
  const auto moves =
      kDsr.plan(event_of({{1000, 140}, {1000, 210}, {316, 310}}, {40, 10, 10}), &threshold);
  EXPECT_EQ(grows(moves), (std::vector<std::int64_t>{18, 36, 6}));
}

// 100 survivors each and 50 to grow in three layers: 16 each, and 2 for one of them, another one at
// other steps and seeds.
TEST(DsrRule, RoundingGoesToARandomLayer) {
  std::map<std::size_t, int> times;
  for (std::int64_t step = 1; step <= 300; ++step) {
    float threshold = 1;
    const auto grown = grows(
        kDsr.plan(event_of({{999, 150}, {999, 100}, {999, 100}}, {50, 0, 0}, step), &threshold));
    EXPECT_EQ(sum(grown), 50);
    const auto most = std::max_element(grown.begin(), grown.end());
    EXPECT_EQ(*most, 18);
    ++times[static_cast<std::size_t>(most - grown.begin())];
  }
  for (std::size_t l = 0; l < 3; ++l) EXPECT_GT(times[l], 60) << l;
}

TEST(DsrRule, EveryLayerKeepsAWeight) {
  float threshold = 1;
  const auto moves = kDsr.plan(event_of({{100, 20}, {100, 1}, {100, 30}}, {20, 1, 5}), &threshold);
  EXPECT_EQ(drops(moves), (std::vector<std::int64_t>{19, 0, 5}));
  EXPECT_EQ(sum(grows(moves)), 24);
}

// 40 of 200 positions are free, 100 weights are below the threshold: 40 are dropped.
TEST(DsrRule, NoMoreGoThanHaveRoomElsewhere) {
  float threshold = 1;
  const auto moves = kDsr.plan(event_of({{100, 90}, {100, 70}}, {50, 50}), &threshold);
  EXPECT_EQ(drops(moves), (std::vector<std::int64_t>{20, 20}));
  EXPECT_EQ(grows(moves), (std::vector<std::int64_t>{10, 30}));
  // A full network moves nothing.
  EXPECT_EQ(sum(drops(kDsr.plan(event_of({{100, 100}, {100, 100}}, {50, 50}), &threshold))), 0);
}

TEST(SetRule, AFixedShareOfEachLayer) {
  const Set set{RewireSchedule(1000)};
  EXPECT_EQ(set.state_size(), 0);
  // rewire_target(725,760) = 10,000 of 100,000 non-zeros: a tenth.
  auto moves = set.plan(event_of({{625760, 99000}, {100000, 1000}}, {}), nullptr);
  EXPECT_EQ(drops(moves), (std::vector<std::int64_t>{9900, 100}));
  EXPECT_EQ(grows(moves), drops(moves));
  // At most 0.3 of a layer, less than all of it, and no more than it has room for.
  moves = set.plan(event_of({{725760, 1000}, {500, 1}, {100, 97}}, {}), nullptr);
  EXPECT_EQ(drops(moves), (std::vector<std::int64_t>{300, 0, 3}));
  EXPECT_EQ(grows(moves), drops(moves));
}

std::vector<std::int64_t> events_of(std::int64_t total, double stop = RewireSchedule::kStop) {
  const RewireSchedule schedule(total, stop);
  std::vector<std::int64_t> events;
  for (std::int64_t step = 1; step <= total; ++step)
    if (schedule.moves_after(step)) events.push_back(step);
  return events;
}

TEST(Schedule, ThePublishedOne) {
  const std::vector<std::int64_t> events = events_of(100000);
  EXPECT_EQ(events.size(), 367u);
  std::map<std::int64_t, int> gaps;
  for (std::size_t i = 1; i < events.size(); ++i) ++gaps[events[i] - events[i - 1]];
  EXPECT_EQ(events.front(), 100);
  EXPECT_EQ(events.back(), 94400);  // before epoch 190 = update 95,000
  EXPECT_EQ(gaps[100] + gaps[200] + gaps[400] + gaps[800], 366);
  EXPECT_EQ(RewireSchedule(100000).note().find("scaled"), std::string::npos);
}

// 12 epochs of 500: stages end at updates 1,500 / 2 = 750, 2,400, 4,200 and 5,700.
TEST(Schedule, Scaled) {
  const std::vector<std::int64_t> events = events_of(6000);
  std::vector<std::int64_t> expected;
  for (std::int64_t step = 100; step < 750; step += 100) expected.push_back(step);
  for (std::int64_t step = 800; step < 2400; step += 200) expected.push_back(step);
  for (std::int64_t step = 2400; step < 4200; step += 400) expected.push_back(step);
  for (std::int64_t step = 4500; step < 5700; step += 375) expected.push_back(step);
  EXPECT_EQ(events, expected);
  EXPECT_NE(RewireSchedule(6000).note().find("scaled"), std::string::npos);
  for (std::int64_t total = 1; total <= 50; ++total) {
    EXPECT_FALSE(events_of(total).empty()) << total;
    if (total >= 20) {
      EXPECT_LE(events_of(total).back(), total * 95 / 100) << total;
    }
  }
}

TEST(Schedule, StoppedEarly) {
  for (const std::int64_t total : {40, 6000, 100000})
    for (const double stop : {0.125, 0.5, 0.75}) {
      std::vector<std::int64_t> expected = events_of(total);
      std::erase_if(expected, [&](std::int64_t step) { return step > stop * total; });
      EXPECT_EQ(events_of(total, stop), expected) << total << ", " << stop;
      EXPECT_LT(expected.size(), events_of(total).size());
    }
  EXPECT_EQ(events_of(100000, 0.95), events_of(100000));
  EXPECT_EQ(RewireSchedule(100000, 0.95).note(), RewireSchedule(100000).note());
  EXPECT_NE(RewireSchedule(6000, 0.75).note().find("no move after update 4500"), std::string::npos);
}

TEST(PatternMove, TheSmallestMagnitudesGo) {
  const std::vector<float> values{3, -1, 0.5f, -0.5f, 0, 0.5f, -INFINITY, NAN, 1e-40f};
  const auto taken = [&](std::int64_t drop) {
    SmallestMagnitudes smallest = smallest_magnitudes(values.data(), Dtype::f32, 9, drop);
    std::vector<int> positions;
    for (int k = 0; k < 9; ++k)
      if (smallest.take(magnitude_bits(values.data(), Dtype::f32, k))) positions.push_back(k);
    return positions;
  };
  EXPECT_EQ(taken(0), (std::vector<int>{}));
  EXPECT_EQ(taken(1), (std::vector<int>{4}));
  EXPECT_EQ(taken(3), (std::vector<int>{2, 4, 8}));  // of three 0.5s the first
  EXPECT_EQ(taken(4), (std::vector<int>{2, 3, 4, 8}));
  EXPECT_EQ(taken(8), (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 8}));  // never the NaN
  EXPECT_EQ(count_below(values.data(), Dtype::f32, 9, 0.5f), 2);    // strictly below
  const std::vector<F16> halves{F16(1), F16(-2), F16(0.25f)};
  EXPECT_EQ(count_below(halves.data(), Dtype::f16, 3, 1.5f), 2);
}

// Every free position is drawn equally often, others never, and a draw has no doubles.
TEST(PatternMove, DrawsAreUniformAmongFreePositions) {
  constexpr std::int64_t kElements = 100;
  std::uint64_t taken[2] = {};
  for (std::int64_t p = 0; p < kElements; p += 3) bits::insert(taken, p);
  const std::int64_t free = kElements - bits::count(taken, 0, kElements);
  std::vector<int> times(kElements);
  constexpr int kDraws = 4000, kCount = 11;
  for (std::uint32_t step = 0; step < kDraws; ++step) {
    std::uint64_t drawn[2] = {};
    draw_positions(Philox(5, Purpose::sparse_pattern), step, 2, taken, kElements, free, kCount,
                   drawn);
    EXPECT_EQ(bits::count(drawn, 0, kElements), kCount);
    bits::for_each(drawn, 0, kElements, [&](std::int64_t p) { ++times[p]; });
  }
  const double mean = 1.0 * kDraws * kCount / static_cast<double>(free);
  for (std::int64_t p = 0; p < kElements; ++p) {
    if (p % 3 == 0) {
      EXPECT_EQ(times[p], 0);
    } else {
      EXPECT_NEAR(times[p], mean, 6 * std::sqrt(mean)) << p;
    }
  }
  // All of them, where all are asked for.
  std::uint64_t all[2] = {};
  draw_positions(Philox(5, Purpose::sparse_pattern), 1, 2, taken, kElements, free, free, all);
  for (std::int64_t p = 0; p < kElements; ++p) EXPECT_EQ(bits::test(all, p), p % 3 != 0);
}

}  // namespace
}  // namespace memfloor::testing

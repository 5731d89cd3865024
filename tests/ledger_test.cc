// The ledger counts every byte; the arena gives every block its planned place.
#include "core/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/memory_source.h"
#include "tests/temporary_folder.h"

namespace memfloor {
namespace {

using testing::HasSubstr;

ByteSplit split(std::initializer_list<std::pair<Category, std::int64_t>> bytes) {
  ByteSplit result{};
  for (const auto& [category, count] : bytes) at(result, category) = count;
  return result;
}

// ---- counting ----------------------------------------------------------------------------------

TEST(Ledger, CountsLiveBytesByCategory) {
  Ledger ledger(heap_memory());
  Block weight = ledger.allocate(1000, Category::weight, "w");
  {
    Block scratch = ledger.allocate(70, Category::workspace, "scratch");
    Block more = ledger.allocate(5, Category::workspace, "more");
    EXPECT_EQ(ledger.live(), split({{Category::weight, 1000}, {Category::workspace, 75}}));
    EXPECT_EQ(ledger.live_total(), 1075);
    EXPECT_EQ(ledger.source().reserved_bytes(), aligned(1000) + aligned(70) + aligned(5));
  }
  EXPECT_EQ(ledger.live(), split({{Category::weight, 1000}}));
  EXPECT_EQ(weight.bytes(), 1000);
  EXPECT_EQ(weight.category(), Category::weight);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(weight.data()) % kAlignment, 0u);
}

TEST(Ledger, PredictsWithoutMemory) {
  Ledger ledger(no_memory());
  const Block block = ledger.allocate(std::int64_t{1} << 45, Category::activation, "32 TiB");
  EXPECT_EQ(block.data(), nullptr);
  EXPECT_TRUE(block);
  EXPECT_EQ(ledger.live_total(), std::int64_t{1} << 45);
  EXPECT_EQ(ledger.source().reserved_bytes(), 0);
}

TEST(Ledger, RetagMovesBytesAndAddsNone) {
  Ledger ledger(no_memory());
  MemoryRecord record;
  const Ledger::Phase phase(ledger, "step", record);
  Block value = ledger.allocate(100, Category::transient, "value");
  ledger.retag(value, Category::activation);
  ledger.retag(value, Category::activation);
  EXPECT_EQ(ledger.live(), split({{Category::activation, 100}}));
  EXPECT_EQ(value.category(), Category::activation);
  EXPECT_EQ(record.peak_total, 100);
  EXPECT_EQ(record.at_peak, split({{Category::transient, 100}}));  // the peak's first instant
  value = Block();
  EXPECT_EQ(ledger.live(), ByteSplit{});
}

TEST(Ledger, RetagRefusesAStrangersBlock) {
  Ledger ledger(no_memory()), other(no_memory());
  Block block = other.allocate(1, Category::weight, "w"), empty;
  EXPECT_THROW(ledger.retag(block, Category::buffer), Error);
  EXPECT_THROW(ledger.retag(empty, Category::buffer), Error);
}

TEST(Ledger, SplitAtThePeakIsNotTheSumOfCategoryPeaks) {
  Ledger ledger(no_memory());
  const Block weight = ledger.allocate(10, Category::weight, "w");
  MemoryRecord record;
  {
    const Ledger::Phase phase(ledger, "step", record);
    { const Block scratch = ledger.allocate(70, Category::workspace, "scratch"); }
    const Block a = ledger.allocate(60, Category::activation, "a");
    const Block b = ledger.allocate(30, Category::workspace, "b");
  }
  EXPECT_EQ(record.peak_total, 100);
  EXPECT_EQ(record.at_peak,
            split({{Category::weight, 10}, {Category::activation, 60}, {Category::workspace, 30}}));
  EXPECT_EQ(record.category_peak,
            split({{Category::weight, 10}, {Category::activation, 60}, {Category::workspace, 70}}));
  EXPECT_EQ(std::accumulate(record.at_peak.begin(), record.at_peak.end(), std::int64_t{0}),
            record.peak_total);
  EXPECT_EQ(record.allocated_peak, 3 * kAlignment);
  EXPECT_EQ(record.paper_total(), 70);
}

TEST(Ledger, PeaksBelongToPhasesAndRecordsKeepTheHighest) {
  Ledger ledger(no_memory());
  { const Block set_up = ledger.allocate(1000, Category::workspace, "not in any phase"); }
  MemoryRecord train, evaluation;
  const auto step = [&](MemoryRecord& record, std::int64_t bytes) {
    const Ledger::Phase phase(ledger, "step", record);
    const Block block = ledger.allocate(bytes, Category::activation, "a");
  };
  step(train, 30);
  step(train, 20);
  step(evaluation, 5);
  EXPECT_EQ(train.peak_total, 30);
  EXPECT_EQ(evaluation.peak_total, 5);
}

TEST(Ledger, PhasesDoNotNest) {
  Ledger ledger(no_memory());
  MemoryRecord record;
  const Ledger::Phase phase(ledger, "step", record);
  EXPECT_THAT(error_of<Error>([&] { Ledger::Phase inner(ledger, "inner", record); }),
              HasSubstr("phase 'inner' begins inside another phase"));
}

TEST(Ledger, BudgetRefusesWithTheSplitAndChangesNothing) {
  Ledger ledger(no_memory());
  ledger.start_log();
  const Block weight = ledger.allocate(600, Category::weight, "w");
  const Block value = ledger.allocate(300, Category::activation, "a");
  ledger.set_budget(1000);
  MemoryRecord record;
  {
    const Ledger::Phase phase(ledger, "step", record);
    const std::size_t events = ledger.log().size();
    const MemoryRecord before = record;
    const std::string message = error_of<BudgetExceeded>(
        [&] { ledger.allocate(101, Category::workspace, "conv3 scratch"); });
    for (const char* part : {"budget of 1000 bytes", "'conv3 scratch' (workspace, 101 bytes)",
                             "900 bytes alive", "weight 600", "activation 300"})
      EXPECT_THAT(message, HasSubstr(part));
    EXPECT_EQ(ledger.live(), split({{Category::weight, 600}, {Category::activation, 300}}));
    EXPECT_EQ(ledger.log().size(), events);
    EXPECT_EQ(record, before);
    const Block fits = ledger.allocate(100, Category::workspace, "exactly the budget");
    EXPECT_EQ(ledger.live_total(), 1000);
  }
  ledger.set_budget(0);
  const Block free_again = ledger.allocate(5000, Category::input, "no budget");
}

TEST(Ledger, RefusesANegativeSize) {
  Ledger ledger(no_memory());
  EXPECT_THAT(error_of<Error>([&] { ledger.allocate(-4, Category::input, "labels"); }),
              HasSubstr("'labels': -4"));
}

TEST(Block, MovesAndFreesOnce) {
  Ledger ledger(heap_memory());
  Block a = ledger.allocate(10, Category::weight, "a");
  void* data = a.data();
  Block b = std::move(a);
  EXPECT_FALSE(a);
  EXPECT_EQ(a.data(), nullptr);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(ledger.live_total(), 10);
  b = ledger.allocate(7, Category::gradient, "g");  // frees what it held
  EXPECT_EQ(ledger.live(), split({{Category::gradient, 7}}));
  Block& self = b;
  b = std::move(self);
  EXPECT_EQ(ledger.live_total(), 7);
  b = Block();
  EXPECT_EQ(ledger.live_total(), 0);
}

// ---- the log -----------------------------------------------------------------------------------

TEST(EventLog, RecordsEveryEventInOrder) {
  using Kind = LedgerEvent::Kind;
  Ledger ledger(no_memory());
  const Block unseen = ledger.allocate(1, Category::weight, "before the log");
  ledger.start_log();
  MemoryRecord record;
  {
    const Ledger::Phase phase(ledger, "step", record);
    Block a = ledger.allocate(5, Category::transient, "a");
    ledger.retag(a, Category::activation);
  }
  const EventLog& log = ledger.log();
  ASSERT_EQ(log.size(), 5u);
  EXPECT_TRUE(log[0].kind == Kind::phase_begin && log[0].label == "step");
  EXPECT_TRUE(log[1].kind == Kind::allocate && log[1].label == "a" && log[1].bytes == 5 &&
              log[1].category == Category::transient);
  EXPECT_TRUE(log[2].kind == Kind::retag && log[2].category == Category::activation);
  EXPECT_TRUE(log[3].kind == Kind::free && log[3].id == log[1].id);
  EXPECT_TRUE(log[4].kind == Kind::phase_end);
}

TEST(EventLog, TellsWhoIsAliveAtThePeak) {
  Ledger ledger(no_memory());
  ledger.start_log();
  const Block weight = ledger.allocate(10, Category::weight, "w");
  { const Block init = ledger.allocate(500, Category::workspace, "set-up scratch"); }
  MemoryRecord record;
  {
    const Ledger::Phase phase(ledger, "step", record);
    Block a = ledger.allocate(60, Category::transient, "a");
    ledger.retag(a, Category::activation);
    { const Block scratch = ledger.allocate(90, Category::workspace, "scratch"); }
    const Block small = ledger.allocate(20, Category::transient, "small");
  }
  const std::vector<LiveBlock> blocks = live_at_peak(ledger.log());
  ASSERT_EQ(blocks.size(), 3u);
  EXPECT_EQ(blocks[0].label, "scratch");
  EXPECT_EQ(blocks[1].label, "a");
  EXPECT_EQ(blocks[1].category, Category::activation);
  EXPECT_EQ(blocks[2].label, "w");
  std::int64_t sum = 0;
  for (const LiveBlock& block : blocks) sum += block.bytes;
  EXPECT_EQ(sum, record.peak_total);
  EXPECT_TRUE(live_at_peak({}).empty());
}

// ---- the arena ---------------------------------------------------------------------------------

/// A run is a function of its ledger; run once without memory, then in the arena that this plans.
template <class Run>
ArenaLayout plan(const Run& run) {
  Ledger ledger(no_memory());
  ledger.start_log();
  run(ledger);
  return plan_layout(ledger.log());
}

/// A block filled with a byte of its own, which nobody else may change.
struct Marked {
  Block block;
  unsigned char mark;

  Marked(Block&& b, int m) : block(std::move(b)), mark(static_cast<unsigned char>(m)) {
    if (block.data()) std::memset(block.data(), mark, block.bytes());
  }
  bool intact() const {
    const auto* bytes = static_cast<const unsigned char*>(block.data());
    if (!bytes) return true;
    for (std::int64_t i = 0; i < block.bytes(); ++i)
      if (bytes[i] != mark) return false;
    return true;
  }
};

/// Set-up blocks, then phases of random allocations and frees, some nested, some crossing.
void random_run(Ledger& ledger, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Marked> set_up;
  for (int i = 0; i < 5; ++i)
    set_up.emplace_back(ledger.allocate(random() % 3000, Category::weight, "set-up"), i);
  MemoryRecord record;
  for (const char* name : {"train", "evaluate"}) {
    const Ledger::Phase phase(ledger, name, record);
    std::vector<Marked> alive;
    for (int step = 0; step < 200; ++step) {
      if (alive.empty() || random() % 5 < 3) {
        const std::int64_t bytes = random() % 10 == 0 ? 0 : random() % 5000;
        alive.emplace_back(ledger.allocate(bytes, Category::transient, "block"), 10 + step);
        ASSERT_EQ(reinterpret_cast<std::uintptr_t>(alive.back().block.data()) % kAlignment, 0u);
      } else {
        const bool last = random() % 2;
        const auto victim = last ? alive.end() - 1 : alive.begin() + random() % alive.size();
        ASSERT_TRUE(victim->intact());
        alive.erase(victim);
      }
    }
    for (const Marked& block : alive) ASSERT_TRUE(block.intact());
    for (const Marked& block : set_up) ASSERT_TRUE(block.intact());
  }
}

TEST(Arena, BlocksAliveTogetherNeverOverlap) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const auto run = [seed](Ledger& ledger) { random_run(ledger, seed); };
    Ledger ledger(arena_memory(plan(run)));
    run(ledger);
    ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
    EXPECT_EQ(ledger.live_total(), 0);
  }
}

/// What training does: activations pile up forward and go backward, with gradients and scratch.
void training_run(Ledger& ledger, unsigned seed, MemoryRecord& record) {
  std::mt19937 random(seed);
  const Block weights = ledger.allocate(200'000, Category::weight, "weights");
  for (int step = 0; step < 2; ++step) {
    random.seed(seed);  // the phases of one name allocate alike
    const Ledger::Phase phase(ledger, "train", record);
    std::vector<Block> saved;
    Block value = ledger.allocate(100'000, Category::transient, "images");
    for (int layer = 0; layer < 25; ++layer) {
      const std::int64_t bytes = 100'000 >> (layer / 9);
      const Block scratch = ledger.allocate(random() % 30'000, Category::workspace, "scratch");
      Block next = ledger.allocate(bytes, Category::transient, "value");
      ledger.retag(value, Category::activation);
      saved.push_back(std::move(value));
      saved.push_back(ledger.allocate(bytes / 100, Category::activation, "statistics"));
      value = std::move(next);
    }
    Block gradient = ledger.allocate(value.bytes(), Category::transient, "gradient");
    value = Block();
    while (!saved.empty()) {
      const Block scratch = ledger.allocate(random() % 30'000, Category::workspace, "scratch");
      saved.pop_back();
      Block next = ledger.allocate(saved.back().bytes(), Category::transient, "gradient");
      saved.pop_back();
      gradient = std::move(next);
    }
  }
}

TEST(Arena, ReservesAtMostFivePercentOverThePeakOfTraining) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    MemoryRecord record;
    const auto run = [&](Ledger& ledger) { training_run(ledger, seed, record); };
    Ledger ledger(arena_memory(plan(run)));
    run(ledger);
    EXPECT_GE(ledger.source().reserved_bytes(), record.peak_total);
    EXPECT_LE(ledger.source().reserved_bytes(), 1.05 * record.peak_total) << "seed " << seed;
  }
}

/// A small planned run whose steps the tests then break.
class DivergingRun : public testing::Test {
 protected:
  static ArenaLayout layout() {
    return plan([](Ledger& ledger) {
      MemoryRecord record;
      const Block weight = ledger.allocate(100, Category::weight, "w");
      const Ledger::Phase phase(ledger, "train", record);
      { const Block a = ledger.allocate(200, Category::transient, "a"); }
      const Block b = ledger.allocate(200, Category::transient, "b");
    });
  }

  Ledger ledger_{arena_memory(layout())};
  MemoryRecord record_;
};

TEST_F(DivergingRun, AnotherSizeIsRefused) {
  EXPECT_THAT(
      error_of<Error>([&] { ledger_.allocate(101, Category::weight, "w"); }),
      HasSubstr("allocation 0 of 'set-up' is not the planned one: 101 bytes instead of 100"));
}

TEST_F(DivergingRun, AnUnknownPhaseIsRefused) {
  EXPECT_THAT(error_of<Error>([&] { Ledger::Phase phase(ledger_, "evaluate", record_); }),
              HasSubstr("the arena was not planned for phase 'evaluate'"));
  const Ledger::Phase phase(ledger_, "train", record_);  // the refusal left no trace
}

TEST_F(DivergingRun, OneAllocationMoreIsRefused) {
  const Ledger::Phase phase(ledger_, "train", record_);
  { const Block a = ledger_.allocate(200, Category::transient, "a"); }
  const Block b = ledger_.allocate(200, Category::transient, "b");
  EXPECT_THAT(error_of<Error>([&] { ledger_.allocate(1, Category::transient, "c"); }),
              HasSubstr("allocation 2 of 'train' is not the planned one"));
}

TEST_F(DivergingRun, ALaterFreeIsRefused) {
  const Ledger::Phase phase(ledger_, "train", record_);
  const Block a = ledger_.allocate(200, Category::transient, "a");
  EXPECT_THAT(error_of<Error>([&] { ledger_.allocate(200, Category::transient, "b"); }),
              HasSubstr("frees in another order than planned in 'train'"));
  EXPECT_EQ(ledger_.live_total(), 200);
}

TEST_F(DivergingRun, AnAllocationBetweenPhasesIsRefused) {
  { const Ledger::Phase phase(ledger_, "train", record_); }
  EXPECT_THAT(error_of<Error>([&] { ledger_.allocate(1, Category::buffer, "late"); }),
              HasSubstr("'between phases'"));
}

TEST(PlanLayout, RefusesLogsThatAreNoPlan) {
  MemoryRecord record;
  const auto fault = [](auto&& run) { return error_of<Error>([&] { plan(run); }); };

  EXPECT_THAT(fault([&](Ledger& ledger) {
                Block leaked;
                const Ledger::Phase phase(ledger, "train", record);
                leaked = ledger.allocate(1, Category::transient, "leak");
              }),
              HasSubstr("phase 'train' left 1 blocks behind"));

  EXPECT_THAT(fault([&](Ledger& ledger) {
                for (int bytes : {1, 2}) {
                  const Ledger::Phase phase(ledger, "train", record);
                  const Block block = ledger.allocate(bytes, Category::transient, "block");
                }
              }),
              HasSubstr("two phases named 'train' allocate or free differently"));

  EXPECT_THAT(fault([&](Ledger& ledger) {
                { const Ledger::Phase phase(ledger, "train", record); }
                const Block late = ledger.allocate(1, Category::buffer, "late");
              }),
              HasSubstr("block 'late' is allocated between phases"));

  EXPECT_THAT(fault([&](Ledger& ledger) {
                Block weight = ledger.allocate(1, Category::weight, "w");
                const Ledger::Phase phase(ledger, "train", record);
                weight = Block();
              }),
              HasSubstr("a set-up block is freed in phase 'train'"));
}

TEST(PlanLayout, PhasesShareTheSpaceAboveTheSetUp) {
  MemoryRecord record;
  const ArenaLayout layout = plan([&](Ledger& ledger) {
    const Block weight = ledger.allocate(100, Category::weight, "w");
    for (const auto& [name, bytes] : {std::pair("train", 640), std::pair("evaluate", 64)}) {
      const Ledger::Phase phase(ledger, name, record);
      const Block block = ledger.allocate(bytes, Category::transient, "block");
    }
  });
  EXPECT_EQ(layout.total_bytes, 128 + 640);
  EXPECT_EQ(layout.phases.at("train")[0].offset, 128);
  EXPECT_EQ(layout.phases.at("evaluate")[0].offset, 128);
}

// ---- plans of long runs

/// A phase of many small blocks, of which a few are alive at a time; `number` names it.
void busy_phase(Ledger& ledger, unsigned number, MemoryRecord& record) {
  std::mt19937 random(number);
  const Ledger::Phase phase(ledger, "phase " + std::to_string(number), record);
  std::vector<Block> alive(8);
  for (int i = 0; i < 1000; ++i)
    alive[random() % alive.size()] =
        ledger.allocate(1 + random() % 5000, Category::transient, "block");
}

// With a sink, a log does not grow; a layout keeps a few megabytes of it, and its height counts
// all.
TEST(LayoutPlanner, PlansAgainWhatTheLayoutDoesNotHold) {
  constexpr unsigned kPhases = 270;
  LayoutPlanner planner;
  MemoryRecord record;
  Ledger nothing(no_memory());
  std::size_t logs = 0;
  nothing.start_log([&](EventLog&& events) { planner.add(events), ++logs; });
  const Block set_up = nothing.allocate(1000, Category::weight, "w");
  for (unsigned number = 0; number < kPhases; ++number) busy_phase(nothing, number, record);
  EXPECT_EQ(logs, kPhases);
  EXPECT_TRUE(nothing.log().empty());
  const ArenaLayout layout = planner.layout();
  EXPECT_EQ(layout.setup.size(), 1u);
  EXPECT_GT(layout.phases.size(), 250u);
  EXPECT_LT(layout.phases.size(), kPhases);
  EXPECT_LE(layout.total_bytes, 1.3 * static_cast<double>(record.allocated_peak));

  std::vector<std::string> asked;
  Ledger arena(arena_memory(layout, [&](std::string_view name) {
    asked.emplace_back(name);
    busy_phase(nothing, static_cast<unsigned>(std::stoul(asked.back().substr(6))), record);
    return planner.last_phase();
  }));
  MemoryRecord measured;
  const Block weight = arena.allocate(1000, Category::weight, "w");
  for (const unsigned number : {0u, kPhases - 1, 1u, kPhases - 2, kPhases - 1})
    busy_phase(arena, number, measured);
  EXPECT_EQ(asked, (std::vector<std::string>{"phase 269", "phase 268", "phase 269"}));
  EXPECT_EQ(planner.layout().total_bytes, layout.total_bytes);
}

}  // namespace
}  // namespace memfloor

// Planning the arena from an event log, and handing it out by that plan.
#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <unordered_map>

#include "core/error.h"
#include "core/memory_source.h"
#include "core/poison.h"

namespace memfloor {

struct Lifetime {
  std::int64_t bytes;
  std::size_t begin, end;  // [begin, end) in events since the phase began
};

namespace {

using Placement = ArenaLayout::Placement;

// What a heap would do: blocks in order of their begins, each at the lowest gap among those alive.
// Quick, and often good enough.
std::int64_t place_as_they_come(const std::vector<Lifetime>& blocks,
                                std::vector<std::int64_t>& offsets) {
  using Alive = std::pair<std::int64_t, std::size_t>;  // offset, index
  std::vector<Alive> alive;                            // by offset
  std::int64_t height = 0;
  offsets.assign(blocks.size(), 0);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    std::erase_if(alive, [&](const Alive& a) { return blocks[a.second].end <= blocks[i].begin; });
    const std::int64_t size = aligned(blocks[i].bytes);
    std::int64_t offset = 0;
    auto gap = alive.begin();
    for (; gap != alive.end() && gap->first - offset < size; ++gap)
      offset = gap->first + aligned(blocks[gap->second].bytes);
    alive.insert(gap, {offset, i});
    offsets[i] = offset;
    height = std::max(height, offset + size);
  }
  return height;
}

// The most bytes alive at one instant: no placing is lower.
std::int64_t lowest_height(const std::vector<Lifetime>& blocks) {
  std::vector<std::pair<std::size_t, std::int64_t>> changes;  // frees before allocations
  for (const Lifetime& block : blocks) {
    changes.push_back({block.begin, aligned(block.bytes)});
    changes.push_back({block.end, -aligned(block.bytes)});
  }
  std::ranges::sort(changes);
  std::int64_t live = 0, peak = 0;
  for (const auto& [when, bytes] : changes) peak = std::max(peak, live += bytes);
  return peak;
}

// Offsets for one phase such that blocks alive together do not overlap, and the height reached,
// unless that is `limit` or more: it then gives up.
// Greedy: blocks in the given order, each at the lowest gap that fits among those already placed.
std::int64_t place_in_order(const std::vector<Lifetime>& blocks,
                            const std::vector<std::size_t>& order, std::int64_t limit,
                            std::vector<std::int64_t>& offsets) {
  std::vector<std::size_t> placed;  // by offset
  std::int64_t height = 0;
  offsets.assign(blocks.size(), 0);
  for (std::size_t index : order) {
    const Lifetime& block = blocks[index];
    const std::int64_t size = aligned(block.bytes);
    std::int64_t offset = 0;
    for (std::size_t other : placed) {
      const Lifetime& o = blocks[other];
      if (o.begin >= block.end || block.begin >= o.end) continue;
      if (offsets[other] - offset >= size) break;
      offset = std::max(offset, offsets[other] + aligned(o.bytes));
    }
    offsets[index] = offset;
    height = std::max(height, offset + size);
    if (height >= limit) break;
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), offset,
                         [&](std::int64_t value, std::size_t p) { return value < offsets[p]; }),
        index);
  }
  return height;
}

// Tries the orders that serve nested and crossing lifetimes, and keeps the lowest arena, where
// blocks placed as they come rise above `free`, which the arena has anyway, and above what cannot
// be helped. Appends the placements and returns the height.
std::int64_t place_stretch(const std::vector<Lifetime>& blocks, std::int64_t free,
                           std::vector<Placement>& placements) {
  std::vector<std::int64_t> offsets, best;
  std::int64_t best_height = place_as_they_come(blocks, best);
  if (best_height > free) {
    const std::int64_t enough = std::max(free, lowest_height(blocks));
    std::vector<std::size_t> order(blocks.size());
    std::iota(order.begin(), order.end(), 0);
    auto attempt = [&](auto&& key) {
      if (best_height <= enough) return;
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return key(blocks[a]) > key(blocks[b]);
      });
      const std::int64_t height = place_in_order(blocks, order, best_height, offsets);
      if (height < best_height) best_height = height, best = offsets;
    };
    const auto length = [](const Lifetime& b) { return static_cast<double>(b.end - b.begin); };
    attempt([](const Lifetime& b) { return static_cast<double>(b.bytes); });
    attempt(length);
    attempt([&](const Lifetime& b) { return static_cast<double>(b.bytes) * length(b); });
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) placements.push_back({blocks[i].bytes, best[i]});
  return best_height;
}

// Where no block is alive, as between the parts of a minibatch, a phase falls into stretches that
// are placed by themselves: the greedy search is quadratic in the blocks that it is given.
std::int64_t place_phase(const std::vector<Lifetime>& blocks, std::int64_t free,
                         std::vector<Placement>& placements) {
  std::vector<Lifetime> stretch;
  std::size_t alive_until = 0;
  const auto place = [&] {
    free = std::max(free, place_stretch(stretch, free, placements));
    stretch.clear();
  };
  for (const Lifetime& block : blocks) {  // in order of their begins
    if (block.begin >= alive_until) place();
    stretch.push_back(block);
    alive_until = std::max(alive_until, block.end);
  }
  place();
  return free;
}

std::uint64_t hash_of(const std::vector<Lifetime>& blocks) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const Lifetime& block : blocks)
    for (const auto value :
         {static_cast<std::uint64_t>(block.bytes), static_cast<std::uint64_t>(block.begin),
          static_cast<std::uint64_t>(block.end)})
      hash = (hash ^ value) * 0x100000001b3u;
  return hash;
}

// Placements that a layout holds at most, beside those of its first phase.
constexpr std::size_t kKeptPlacements = 1 << 18;

}  // namespace

void LayoutPlanner::add(const EventLog& log) {
  using Kind = LedgerEvent::Kind;
  std::string phase;
  bool in_phase = false;
  std::size_t phase_begin = 0;
  std::vector<Lifetime> blocks;                          // of the current phase
  std::unordered_map<std::uint32_t, std::size_t> alive;  // id -> index in blocks

  for (std::size_t i = 0; i < log.size(); ++i) {
    const LedgerEvent& e = log[i];
    if (e.kind == Kind::phase_begin) {
      in_phase = true, phase = e.label, phase_begin = i;
      blocks.clear(), alive.clear();
    } else if (e.kind == Kind::phase_end) {
      MEMFLOOR_CHECK(alive.empty(), "phase '", phase, "' left ", alive.size(), " blocks behind");
      place(phase, blocks);
      in_phase = false;
    } else if (e.kind == Kind::allocate && in_phase) {
      alive[e.id] = blocks.size();
      blocks.push_back({e.bytes, i - phase_begin, i - phase_begin});
    } else if (e.kind == Kind::allocate) {
      MEMFLOOR_CHECK(seen_.empty(), "block '", e.label, "' is allocated between phases");
      layout_.setup.push_back({e.bytes, base_});
      base_ += aligned(e.bytes);
    } else if (e.kind == Kind::free && in_phase) {
      const auto found = alive.find(e.id);
      MEMFLOOR_CHECK(found != alive.end(), "a set-up block is freed in phase '", phase, "'");
      blocks[found->second].end = i - phase_begin;
      alive.erase(found);
    }
  }
  layout_.total_bytes = base_ + height_;
}

void LayoutPlanner::place(std::string phase, const std::vector<Lifetime>& blocks) {
  const auto [known, fresh] = seen_.emplace(phase, hash_of(blocks));
  MEMFLOOR_CHECK(fresh || known->second == hash_of(blocks), "two phases named '", phase,
                 "' allocate or free differently");
  if (const auto kept = layout_.phases.find(phase); kept != layout_.phases.end()) {
    last_phase_ = kept->second;
    return;
  }
  last_phase_.clear();
  height_ = std::max(height_, place_phase(blocks, height_, last_phase_));
  for (Placement& p : last_phase_) p.offset += base_;
  if (!layout_.phases.empty() && kept_ + last_phase_.size() > kKeptPlacements) return;
  kept_ += last_phase_.size();
  layout_.phases.emplace(std::move(phase), last_phase_);
}

ArenaLayout plan_layout(const EventLog& log) {
  LayoutPlanner planner;
  planner.add(log);
  return planner.layout();
}

namespace {

constexpr std::int64_t kHugePage = 2 << 20;

class ArenaMemory final : public MemorySource {
 public:
  ArenaMemory(ArenaLayout layout, PhasePlanner planner)
      : layout_(std::move(layout)), planner_(std::move(planner)), current_(&layout_.setup) {
    // Address space is rounded up to whole huge pages; untouched pages cost nothing.
    mapped_bytes_ = (layout_.total_bytes + 2 * kHugePage - 1) / kHugePage * kHugePage;
    mapping_ = mmap(nullptr, static_cast<std::size_t>(mapped_bytes_), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping_ == MAP_FAILED)
      throw Error(concat("the system refuses an arena of ", layout_.total_bytes, " bytes"));
    auto address = reinterpret_cast<std::uintptr_t>(mapping_);
    base_ = reinterpret_cast<char*>((address + kHugePage - 1) / kHugePage * kHugePage);
    // Whole huge pages only: the ragged end stays on small pages, so that no byte beyond the
    // reserve becomes resident.
    if (const std::int64_t whole = layout_.total_bytes / kHugePage * kHugePage; whole > 0)
      madvise(base_, static_cast<std::size_t>(whole), MADV_HUGEPAGE);
    forbid(base_, layout_.total_bytes);
  }

  ~ArenaMemory() override {
    permit(base_, layout_.total_bytes);
    munmap(mapping_, static_cast<std::size_t>(mapped_bytes_));
  }

  void begin_phase(std::string_view name) override {
    const auto found = layout_.phases.find(name);
    MEMFLOOR_CHECK(found != layout_.phases.end() || planner_,
                   "the arena was not planned for phase '", name, "'");
    if (found == layout_.phases.end()) planned_ = planner_(name);
    current_ = found == layout_.phases.end() ? &planned_ : &found->second;
    next_ = 0;
    phase_ = name;
  }

  void end_phase() noexcept override {
    static const std::vector<Placement> kNone;
    current_ = &kNone;
    next_ = 0;
    phase_ = "between phases";
  }

  void* place(std::int64_t bytes) override {
    MEMFLOOR_CHECK(next_ < current_->size() && (*current_)[next_].bytes == bytes, "allocation ",
                   next_, " of '", phase_, "' is not the planned one: ", bytes,
                   " bytes instead of ", next_ < current_->size() ? (*current_)[next_].bytes : -1);
    const std::int64_t offset = (*current_)[next_++].offset;
    const std::int64_t end = offset + aligned(bytes);
    MEMFLOOR_CHECK(end <= layout_.total_bytes, "'", phase_, "' needs more than was reserved");
    if (bytes > 0) {
      const auto after = live_.lower_bound(offset);
      const bool free_above = after == live_.end() || after->first >= end;
      const bool free_below = after == live_.begin() || std::prev(after)->second <= offset;
      MEMFLOOR_CHECK(free_above && free_below, "the run frees in another order than planned in '",
                     phase_, "'");
      live_.emplace(offset, end);
    }
    char* data = base_ + offset;
    permit(data, bytes);
    fill_with_garbage(data, bytes);
    return data;
  }

  void release(void* data, std::int64_t bytes) noexcept override {
    if (bytes == 0) return;
    fill_with_garbage(data, bytes);
    forbid(data, bytes);
    live_.erase(static_cast<char*>(data) - base_);
  }

  std::int64_t reserved_bytes() const override { return layout_.total_bytes; }

 private:
  ArenaLayout layout_;
  PhasePlanner planner_;
  std::vector<Placement> planned_;  // by it, for the current phase
  const std::vector<Placement>* current_;
  std::size_t next_ = 0;
  std::string phase_ = "set-up";
  std::map<std::int64_t, std::int64_t> live_;  // offset -> end
  void* mapping_ = nullptr;
  char* base_ = nullptr;
  std::int64_t mapped_bytes_ = 0;
};

}  // namespace

std::unique_ptr<MemorySource> arena_memory(ArenaLayout layout, PhasePlanner planner) {
  return std::make_unique<ArenaMemory>(std::move(layout), std::move(planner));
}

}  // namespace memfloor

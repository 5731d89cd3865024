// Where a ledger's blocks lie: nowhere (prediction), on the heap (tests), or in one arena.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/ledger.h"

namespace memfloor {

class MemorySource {
 public:
  virtual ~MemorySource() = default;
  virtual void begin_phase(std::string_view name) = 0;
  virtual void end_phase() noexcept = 0;
  /// A place for `bytes` bytes, aligned to kAlignment; its contents are indeterminate.
  virtual void* place(std::int64_t bytes) = 0;
  virtual void release(void* data, std::int64_t bytes) noexcept = 0;
  /// Bytes of address space held for blocks, used or not.
  virtual std::int64_t reserved_bytes() const = 0;
};

/// Hands out null pointers: for runs that compute nothing.
std::unique_ptr<MemorySource> no_memory();

/// One heap allocation a block.
std::unique_ptr<MemorySource> heap_memory();

/// Offsets for every block of a run, from the event log of a run with the same spec.
/// Set-up blocks lie at the bottom; the phases, of which only one runs at a time, share the rest.
struct ArenaLayout {
  struct Placement {
    std::int64_t bytes;
    std::int64_t offset;
  };
  std::vector<Placement> setup;
  std::map<std::string, std::vector<Placement>, std::less<>> phases;  // in order of allocation
  std::int64_t total_bytes = 0;
};

/// Plans an arena while the log comes in, phase by phase.
class LayoutPlanner {
 public:
  /// Events of whole phases, the set-up's before the first. Throws Error where a phase leaves
  /// blocks behind or two phases of one name differ.
  void add(const EventLog& events);

  /// Of all that was added; phases beyond what fits into a few megabytes are counted in its height,
  /// but not in it.
  const ArenaLayout& layout() const { return layout_; }
  /// Of the phase that was added last.
  const std::vector<ArenaLayout::Placement>& last_phase() const { return last_phase_; }

 private:
  void place(std::string phase, const std::vector<struct Lifetime>& blocks);

  ArenaLayout layout_;
  std::vector<ArenaLayout::Placement> last_phase_;
  std::int64_t base_ = 0, height_ = 0;         // of the set-up, of the phases above it
  std::size_t kept_ = 0;                       // placements
  std::map<std::string, std::uint64_t> seen_;  // a phase's blocks, as a hash
};
ArenaLayout plan_layout(const EventLog& log);

/// The placements of a phase that the layout does not hold.
using PhasePlanner = std::function<std::vector<ArenaLayout::Placement>(std::string_view phase)>;

/// One reserved region, on huge pages where the system has them. A run that does not follow the
/// layout (another size, another order, an unknown phase) throws Error: it is not the run that was
/// planned.
std::unique_ptr<MemorySource> arena_memory(ArenaLayout layout, PhasePlanner planner = {});

}  // namespace memfloor

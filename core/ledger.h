// The ledger: the one place where training memory comes from.
//
// Every byte has a category, given at allocation and changed only by retag(). The ledger knows at
// any instant how many bytes of each category are live, keeps the peaks, refuses what would pass a
// budget, and can log every event. Where the bytes lie is not its business: see memory_source.h.
//
// A run is a set-up, whose blocks live to the end, followed by phases (one minibatch, one
// evaluation part, ...). Blocks allocated in a phase are freed in it. Equal phase names promise
// equal sequences of allocations, which is what lets a run without arithmetic predict a real one
// byte for byte.
//
// Not thread-safe: only the thread that drives the run allocates; kernels get their scratch handed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/memory_record.h"

namespace memfloor {

class Ledger;
class MemorySource;

/// Blocks are placed at multiples of this many bytes.
inline constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Owns one allocation; move-only, frees itself.
class Block {
 public:
  Block() = default;
  Block(Block&& other) noexcept { swap(other); }
  Block& operator=(Block&& other) noexcept {
    Block(std::move(other)).swap(*this);
    return *this;
  }
  ~Block();

  /// Null where the ledger's source has no memory (prediction), and for an empty Block.
  void* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }
  Category category() const { return category_; }
  explicit operator bool() const { return ledger_ != nullptr; }

 private:
  friend class Ledger;
  void swap(Block& other) noexcept;

  Ledger* ledger_ = nullptr;
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
  std::uint32_t id_ = 0;
  Category category_ = Category::transient;
};

struct LedgerEvent {
  enum class Kind : std::uint8_t { allocate, free, retag, phase_begin, phase_end };
  Kind kind;
  Category category;   // of allocate; the new one of retag
  std::uint32_t id;    // counts allocations
  std::int64_t bytes;  // of allocate
  std::string label;   // of allocate: what the block is; of phase_begin: the phase's name
};
using EventLog = std::vector<LedgerEvent>;

/// A block that was live at some instant.
struct LiveBlock {
  std::string label;
  Category category;
  std::int64_t bytes;
};

/// The blocks alive at the (first) instant of the highest total inside phases, largest first.
std::vector<LiveBlock> live_at_peak(const EventLog& log);

class BudgetExceeded : public Error {
 public:
  using Error::Error;
};

class Ledger {
 public:
  /// The source decides where blocks lie; see memory_source.h.
  explicit Ledger(std::unique_ptr<MemorySource> source);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  /// Contents are indeterminate. Throws BudgetExceeded, with the split, when the requested bytes
  /// alive would pass the budget. `label` says what the block is, for logs and messages.
  Block allocate(std::int64_t bytes, Category category, std::string_view label);

  /// Moves a block's bytes to another category; no instant counts them twice or not at all.
  void retag(Block& block, Category category);

  /// A stretch of the run whose peaks go to `record` (which keeps what is higher already).
  class Phase {
   public:
    Phase(Ledger& ledger, std::string_view name, MemoryRecord& record);
    ~Phase();
    Phase(const Phase&) = delete;
    Phase& operator=(const Phase&) = delete;

   private:
    Ledger& ledger_;
  };

  /// Requested bytes; 0 lifts the budget.
  void set_budget(std::int64_t bytes) { budget_ = bytes; }

  /// A log grows with the run; where there is a sink, it is handed every phase's events when the
  /// phase ends (the first ones with the set-up's before them), and the log keeps none of them.
  using LogSink = std::function<void(EventLog&& events)>;
  void start_log(LogSink sink = {}) {
    logging_ = true;
    log_sink_ = std::move(sink);
  }
  const EventLog& log() const { return log_; }

  const ByteSplit& live() const { return live_; }
  std::int64_t live_total() const { return live_total_; }
  const MemorySource& source() const { return *source_; }

 private:
  friend class Block;
  void release(Block& block) noexcept;
  void note_peaks();
  void log_event(LedgerEvent::Kind kind, Category category, std::uint32_t id, std::int64_t bytes,
                 std::string_view label);

  std::unique_ptr<MemorySource> source_;
  MemoryRecord* record_ = nullptr;  // of the current phase
  ByteSplit live_{};
  std::int64_t live_total_ = 0;
  std::int64_t live_allocated_ = 0;
  std::int64_t budget_ = 0;
  std::uint32_t next_id_ = 0;
  bool logging_ = false;
  EventLog log_;
  LogSink log_sink_;
};

}  // namespace memfloor

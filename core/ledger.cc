#include "core/ledger.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/memory_source.h"

namespace memfloor {

const char* name_of(Category category) {
  constexpr const char* kNames[kCategoryCount] = {"weight",          "sparse_index", "gradient",
                                                  "optimizer_state", "buffer",       "activation",
                                                  "transient",       "workspace",    "input"};
  return kNames[static_cast<int>(category)];
}

Block::~Block() {
  if (ledger_) ledger_->release(*this);
}

void Block::swap(Block& other) noexcept {
  std::swap(ledger_, other.ledger_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(id_, other.id_);
  std::swap(category_, other.category_);
}

namespace {

std::string describe(const ByteSplit& split) {
  std::string text;
  for (int c = 0; c < kCategoryCount; ++c)
    if (split[c] != 0)
      text += concat(text.empty() ? "" : ", ", name_of(static_cast<Category>(c)), " ", split[c]);
  return text;
}

}  // namespace

Ledger::Ledger(std::unique_ptr<MemorySource> source) : source_(std::move(source)) {}
Ledger::~Ledger() = default;

Block Ledger::allocate(std::int64_t bytes, Category category, std::string_view label) {
  MEMFLOOR_CHECK(bytes >= 0, "negative size for block '", label, "': ", bytes);
  if (budget_ > 0 && live_total_ + bytes > budget_)
    throw BudgetExceeded(concat("the memory budget of ", budget_, " bytes does not hold '", label,
                                "' (", name_of(category), ", ", bytes, " bytes) beside the ",
                                live_total_, " bytes alive: ", describe(live_),
                                "; raise --memory-budget or choose a leaner spec"));
  Block block;
  block.data_ = source_->place(bytes);
  block.ledger_ = this;
  block.bytes_ = bytes;
  block.id_ = next_id_++;
  block.category_ = category;
  at(live_, category) += bytes;
  live_total_ += bytes;
  live_allocated_ += aligned(bytes);
  note_peaks();
  log_event(LedgerEvent::Kind::allocate, category, block.id_, bytes, label);
  return block;
}

void Ledger::retag(Block& block, Category category) {
  MEMFLOOR_CHECK(block.ledger_ == this, "retag of a block that is not this ledger's");
  if (block.category_ == category) return;
  at(live_, block.category_) -= block.bytes_;
  at(live_, category) += block.bytes_;
  block.category_ = category;
  note_peaks();
  log_event(LedgerEvent::Kind::retag, category, block.id_, block.bytes_, {});
}

void Ledger::release(Block& block) noexcept {
  at(live_, block.category_) -= block.bytes_;
  live_total_ -= block.bytes_;
  live_allocated_ -= aligned(block.bytes_);
  source_->release(block.data_, block.bytes_);
  log_event(LedgerEvent::Kind::free, block.category_, block.id_, block.bytes_, {});
}

void Ledger::note_peaks() {
  if (!record_) return;
  MemoryRecord& r = *record_;
  for (int c = 0; c < kCategoryCount; ++c)
    r.category_peak[c] = std::max(r.category_peak[c], live_[c]);
  r.allocated_peak = std::max(r.allocated_peak, live_allocated_);
  if (live_total_ > r.peak_total) {
    r.peak_total = live_total_;
    r.at_peak = live_;
  }
}

void Ledger::log_event(LedgerEvent::Kind kind, Category category, std::uint32_t id,
                       std::int64_t bytes, std::string_view label) {
  if (logging_) log_.push_back({kind, category, id, bytes, std::string(label)});
}

Ledger::Phase::Phase(Ledger& ledger, std::string_view name, MemoryRecord& record)
    : ledger_(ledger) {
  MEMFLOOR_CHECK(ledger.record_ == nullptr, "phase '", name, "' begins inside another phase");
  ledger.source_->begin_phase(name);
  ledger.record_ = &record;
  ledger.note_peaks();
  ledger.log_event(LedgerEvent::Kind::phase_begin, Category::transient, 0, 0, name);
}

Ledger::Phase::~Phase() {
  ledger_.record_ = nullptr;
  ledger_.source_->end_phase();
  ledger_.log_event(LedgerEvent::Kind::phase_end, Category::transient, 0, 0, {});
  if (ledger_.log_sink_) ledger_.log_sink_(std::exchange(ledger_.log_, {}));
}

std::vector<LiveBlock> live_at_peak(const EventLog& log) {
  using Kind = LedgerEvent::Kind;
  // Two passes: where is the peak, then who lives there.
  std::unordered_map<std::uint32_t, LiveBlock> live;
  auto replay = [&](std::size_t end, auto&& visit) {
    std::int64_t total = 0;
    bool in_phase = false;
    live.clear();
    for (std::size_t i = 0; i < end; ++i) {
      const LedgerEvent& e = log[i];
      if (e.kind == Kind::allocate) {
        live[e.id] = {e.label, e.category, e.bytes};
        total += e.bytes;
      } else if (e.kind == Kind::free) {
        const auto found = live.find(e.id);
        if (found == live.end()) continue;  // allocated before the log began
        total -= found->second.bytes;
        live.erase(found);
      } else if (e.kind == Kind::retag) {
        if (const auto found = live.find(e.id); found != live.end())
          found->second.category = e.category;
      } else {
        in_phase = e.kind == Kind::phase_begin;
      }
      visit(i, in_phase ? total : -1);
    }
  };
  std::int64_t peak = -1;
  std::size_t peak_event = 0;
  replay(log.size(), [&](std::size_t i, std::int64_t total) {
    if (total > peak) peak = total, peak_event = i;
  });
  if (peak < 0) return {};
  replay(peak_event + 1, [](std::size_t, std::int64_t) {});
  std::vector<LiveBlock> blocks;
  for (auto& [id, block] : live) blocks.push_back(std::move(block));
  std::sort(blocks.begin(), blocks.end(), [](const LiveBlock& a, const LiveBlock& b) {
    return std::tie(b.bytes, a.label) < std::tie(a.bytes, b.label);
  });
  return blocks;
}

}  // namespace memfloor

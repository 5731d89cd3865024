// What a ledger reports: the meaning of every figure is in docs/memory-accounting.md.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace memfloor {

enum class Category : std::uint8_t {
  weight,           // what forward reads
  sparse_index,     // the pattern of compressed weights
  gradient,         // of weights
  optimizer_state,  // moments, momentum, FP32 masters
  buffer,           // batch-norm running statistics and the like
  activation,       // a forward value while an op still has to read it in backward
  transient,        // every other forward value, and every gradient of a value
  workspace,        // library scratch, reordered weights, partial sums, casts
  input,            // what the loader stages: raw bytes, labels
};
inline constexpr int kCategoryCount = 9;

/// "weight", "sparse_index", ... as in the result files.
const char* name_of(Category category);

/// Bytes by category, indexed by static_cast<int>(Category).
using ByteSplit = std::array<std::int64_t, kCategoryCount>;

inline std::int64_t& at(ByteSplit& split, Category c) { return split[static_cast<int>(c)]; }
inline std::int64_t at(const ByteSplit& split, Category c) { return split[static_cast<int>(c)]; }

/// Peaks over some stretch of a run, in requested bytes unless said otherwise.
struct MemoryRecord {
  std::int64_t peak_total = 0;
  ByteSplit at_peak{};              // the split at the instant of peak_total; sums to it
  ByteSplit category_peak{};        // each category's own peak (their sum is not a peak)
  std::int64_t allocated_peak = 0;  // every block rounded up to the alignment

  bool operator==(const MemoryRecord&) const = default;

  /// The record of a stretch that follows.
  void add(const MemoryRecord& other) {
    if (other.peak_total > peak_total) peak_total = other.peak_total, at_peak = other.at_peak;
    for (int c = 0; c < kCategoryCount; ++c)
      category_peak[c] = std::max(category_peak[c], other.category_peak[c]);
    allocated_peak = std::max(allocated_peak, other.allocated_peak);
  }

  // The paper's three components, from category peaks.
  std::int64_t paper_model() const {
    return at(category_peak, Category::weight) + at(category_peak, Category::sparse_index);
  }
  std::int64_t paper_optimizer() const {
    return at(category_peak, Category::gradient) + at(category_peak, Category::optimizer_state);
  }
  std::int64_t paper_activation() const { return at(category_peak, Category::activation); }
  std::int64_t paper_total() const {
    return paper_model() + paper_optimizer() + paper_activation();
  }
};

}  // namespace memfloor

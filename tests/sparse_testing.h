// Patterns of non-zeros made by the tests themselves, in every index format.
#pragma once

#include <string>
#include <vector>

#include "backends/sparse_pattern.h"

namespace memfloor::testing {

inline std::string index_name(SparseIndex index) {
  return index == SparseIndex::bitmap ? "bitmap" : index == SparseIndex::csr16 ? "csr16" : "csr32";
}

class TestPattern {
 public:
  TestPattern() = default;
  /// `stored`: one entry a position, in canonical order.
  TestPattern(SparseIndex index, std::int64_t outputs, std::int64_t taps, std::int64_t inputs,
              std::vector<bool> stored)
      : index_(index),
        outputs_(outputs),
        taps_(taps),
        inputs_(inputs),
        stored_(std::move(stored)),
        words_(stored_.size() / 64 + 1) {
    // Row starts count from anywhere: as in the middle of a slab.
    row_starts_.push_back(1000);
    for (std::size_t i = 0; i < stored_.size(); ++i) {
      const auto column = static_cast<std::uint32_t>(i % static_cast<std::size_t>(taps * inputs));
      if (column == 0 && i > 0) row_starts_.push_back(next());
      if (!stored_[i]) continue;
      words_[i / 64] |= std::uint64_t{1} << (i % 64);
      columns16_.push_back(static_cast<std::uint16_t>(column));
      columns32_.push_back(column);
    }
    row_starts_.push_back(next());
  }

  bool stored(std::size_t position) const { return stored_[position]; }
  SparsePattern view() const {
    const void* const positions = index_ == SparseIndex::bitmap ? words_.data()
                                  : index_ == SparseIndex::csr16
                                      ? static_cast<const void*>(columns16_.data())
                                      : columns32_.data();
    return {index_, outputs_, taps_, inputs_, positions, row_starts_.data()};
  }

 private:
  std::uint32_t next() const { return 1000 + static_cast<std::uint32_t>(columns32_.size()); }

  SparseIndex index_ = SparseIndex::bitmap;
  std::int64_t outputs_ = 0, taps_ = 0, inputs_ = 0;
  std::vector<bool> stored_;
  std::vector<std::uint64_t> words_;
  std::vector<std::uint16_t> columns16_;
  std::vector<std::uint32_t> columns32_, row_starts_;
};

}  // namespace memfloor::testing

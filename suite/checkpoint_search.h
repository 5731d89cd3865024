// checkpoint "budget:BYTES": the plan with the least recomputation whose predicted peak fits.
//
// Searched are all trees whose segments are runs of whole blocks or single units. The peak of such
// a plan is a maximum of sums of the chain's profile, so the best plans follow from those of
// shorter stretches (dynamic programming over stretches, with the whole trade between peak and
// recomputation for each); it is exact, and the prediction of the plan chosen checks it.
#pragma once

#include <vector>

#include "suite/chain_profile.h"

namespace memfloor {

/// What recomputation costs, in multiply-adds: those that run again, and for every byte of a value
/// made again as many as a processor does while that byte and those it comes from pass by.
inline constexpr std::int64_t kMultiplyAddsPerByte = 8;
constexpr std::int64_t recomputation_cost(std::int64_t multiply_adds, std::int64_t bytes) {
  return multiply_adds + kMultiplyAddsPerByte * bytes;
}

class CheckpointSearch {
 public:
  explicit CheckpointSearch(ChainProfile profile);
  CheckpointSearch(const CheckpointSearch&) = delete;
  CheckpointSearch& operator=(const CheckpointSearch&) = delete;

  struct Plan {
    std::int64_t peak = 0;  // bytes, of a part's forward and backward
    std::int64_t cost = 0;  // of recomputation, of one part
    SegmentTree tree;
  };
  /// The plans that no other beats in both, from the highest peak (and least cost) to the lowest.
  std::vector<Plan> plans() const;

 private:
  // How a level of a tree goes on from some block: with that block, kept as `option` says, or
  // with a segment from it to block `end`; then `rest`.
  struct Choice {
    std::int64_t peak, cost;
    std::size_t begin = 0, end = 0;
    std::size_t option = 0;
    const Choice* inner = nullptr;  // of a segment
    const Choice* rest = nullptr;   // null: the level ends
  };
  using Choices = std::vector<Choice>;  // falling peaks, rising costs

  struct Forward {
    std::int64_t bytes, cost;
  };
  Forward replayed_segment(std::size_t begin, std::size_t end) const;
  std::int64_t first_pass_of_segment(std::size_t begin, std::size_t end) const;
  void add_kept(Choices& to, std::size_t block, std::int64_t before_forward, bool first_pass,
                const Choices* rest) const;
  void add_segment(Choices& to, std::size_t begin, std::size_t end, Forward forward,
                   const Choices* rest) const;
  static void keep_best(Choices& choices);
  void search();
  static SegmentTree tree_of(const ChainProfile& profile, const Choice* choice);

  std::size_t size() const { return profile_.blocks.size(); }
  std::int64_t statistics_before(std::size_t block) const { return statistics_[block]; }

  ChainProfile profile_;
  std::vector<std::int64_t> statistics_;  // kept by all blocks before
  // By [begin][end]: a level that begins with one block's input and ends with another's output,
  // and the same where it is not one segment from begin to end: what a segment may have inside.
  std::vector<std::vector<Choices>> levels_, insides_;
  std::vector<Choices> top_;  // by begin: the top of the tree
};

/// Where the spec's checkpoint is a budget, the same spec with the plan that was found. Throws
/// InputError, with the smallest peak that a plan reaches, where none fits.
RunSpec with_checkpoint_found(const RunSpec& spec, const Task& task,
                              const std::shared_ptr<Backend>& target);

}  // namespace memfloor

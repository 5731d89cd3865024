// What each block of a model's chain adds to memory and to recomputation under the ways a
// checkpointing plan can treat it: measured on a backend that computes nothing, by running a few
// plans with marks between the blocks.
//
// With these figures the peak of any plan over whole blocks, with single units inside them, is a
// sum: see checkpoint_search.cc.
#pragma once

#include <memory>

#include "suite/predictor.h"
#include "techniques/checkpointing/segment_tree.h"

namespace memfloor {

/// Of one stretch of time. Bytes are the highest total in it less the total at its beginning.
struct Stretch {
  std::int64_t bytes = 0;
  std::int64_t multiply_adds = 0, made_bytes = 0;  // recomputed
};

/// A block of which some units are segments of their own (bit i: unit i) and the others are kept.
struct BlockOption {
  std::int64_t held = 0;  // from its forward pass to its backward pass, its input apart
  Stretch first;          // forward in the first pass
  Stretch replayed;       // forward in a replay that goes on after it
  Stretch replayed_last;  // forward where a replay ends
  Stretch backward;       // begins with what it holds and the gradient of its output
};

struct BlockProfile {
  UnitRange units;
  std::int64_t input = 0;             // bytes
  std::int64_t input_statistics = 0;  // that its input brings along in the first pass
  std::int64_t output_gradient = 0;
  std::int64_t statistics = 0;       // kept for its normalisations from the first pass to backward
  std::vector<BlockOption> options;  // by the mask of segments
  // Forward without recording, where a segment (which keeps its input) begins, and inside one.
  Stretch first_of_segment, inside_segment, replayed_first, replayed_inside;
};

struct ChainProfile {
  std::int64_t base = 0;  // alive when the first block begins, its input apart
  std::int64_t loss = 0;  // highest between forward and backward, what blocks keep apart
  std::vector<BlockProfile> blocks;
};

/// Of the task's largest part.
ChainProfile profile_chain(const RunSpec& spec, const Task& task, std::shared_ptr<Backend> target);

}  // namespace memfloor

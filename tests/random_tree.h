// Retention plans drawn at random.
#pragma once

#include "core/philox.h"
#include "techniques/checkpointing/segment_tree.h"

namespace memfloor::testing {

/// A tree over units [begin, end); `draws` counts the random numbers drawn so far.
inline SegmentTree random_tree(std::size_t begin, std::size_t end, std::uint32_t seed,
                               std::uint32_t& draws) {
  const auto draw = [&](std::size_t n) {
    return uniform_below(Philox::rounds({draws++, 0, 0, 0}, {seed, 0})[0],
                         static_cast<std::uint32_t>(n));
  };
  SegmentTree tree;
  for (std::size_t at = begin; at < end;) {
    const std::size_t length = 1 + draw(end - at);
    if (draw(4) > 0) {
      SegmentNode segment{{at, at + length}, {}};
      if (draw(3) > 0) segment.inner = random_tree(at, at + length, seed, draws);
      tree.push_back(std::move(segment));
    }
    at += length;
  }
  return tree;
}

}  // namespace memfloor::testing

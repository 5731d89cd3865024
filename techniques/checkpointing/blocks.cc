#include "techniques/checkpointing/blocks.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace memfloor {
namespace {

std::vector<UnitRange> blocks_of(const Chain& chain, UnitRange units) {
  std::vector<UnitRange> blocks;
  std::size_t begin = units.begin;
  for (std::size_t i = units.begin; i < units.end; ++i)
    if (chain[i].block_border || i + 1 == units.end) {
      blocks.push_back({begin, i + 1});
      begin = i + 1;
    }
  return blocks;
}

// The partition into `count` runs of blocks whose largest run saves least. best[k][n] is that
// largest run's size for the first n blocks in k runs, and first[k][n] where the last run begins.
std::vector<UnitRange> balanced(const Chain& chain, UnitRange units, std::size_t count) {
  const std::vector<UnitRange> blocks = blocks_of(chain, units);
  count = std::min(count, blocks.size());
  std::vector<std::int64_t> saved{0};  // by all blocks before
  for (const UnitRange& block : blocks)
    saved.push_back(saved.back() + saved_elements(chain, block));
  constexpr auto kNever = std::numeric_limits<std::int64_t>::max();
  const std::size_t n = blocks.size();
  std::vector best(count + 1, std::vector<std::int64_t>(n + 1, kNever));
  std::vector first(count + 1, std::vector<std::size_t>(n + 1));
  best[0][0] = 0;
  for (std::size_t k = 1; k <= count; ++k)
    for (std::size_t end = k; end <= n; ++end)
      for (std::size_t begin = k - 1; begin < end; ++begin) {
        const std::int64_t largest = std::max(best[k - 1][begin], saved[end] - saved[begin]);
        if (largest < best[k][end]) best[k][end] = largest, first[k][end] = begin;
      }
  std::vector<UnitRange> parts;
  for (std::size_t k = count, end = n; k > 0; end = first[k][end], --k)
    parts.push_back({blocks[first[k][end]].begin, blocks[end - 1].end});
  std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace

CutRule every_block() { return {blocks_of}; }

CutRule balanced_segments(std::int64_t count) {
  return {[count](const Chain& chain, UnitRange units) {
    return balanced(chain, units, static_cast<std::size_t>(count));
  }};
}

CutRule sqrt_segments() {
  return {[](const Chain& chain, UnitRange units) {
    const auto blocks = static_cast<double>(blocks_of(chain, units).size());
    return balanced(chain, units, static_cast<std::size_t>(std::lround(std::sqrt(blocks))));
  }};
}

CutRule repeated_halves() {
  return {[](const Chain& chain, UnitRange units) { return balanced(chain, units, 2); }, true};
}

std::int64_t count_blocks(const Chain& chain) {
  return static_cast<std::int64_t>(blocks_of(chain, {0, chain.size()}).size());
}

std::int64_t saved_elements(const Chain& chain, UnitRange units) {
  std::int64_t saved = 0;
  for (std::size_t i = units.begin; i < units.end; ++i) saved += chain[i].saved_elements;
  return saved;
}

}  // namespace memfloor

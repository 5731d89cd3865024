#include "techniques/sparsity/set.h"

#include <algorithm>

namespace memfloor {

std::vector<LayerMove> Set::plan(const PatternEvent& event, float*) const {
  std::int64_t positions = 0, non_zeros = 0;
  for (const LayerCounts& layer : event.layers)
    positions += layer.elements, non_zeros += layer.non_zeros;
  const double share =
      std::min(0.3, static_cast<double>(rewire_target(positions)) / static_cast<double>(non_zeros));

  std::vector<LayerMove> moves;
  for (const LayerCounts& layer : event.layers) {
    const auto wanted = static_cast<std::int64_t>(share * static_cast<double>(layer.non_zeros));
    const std::int64_t drop = std::min({wanted, layer.non_zeros - 1, layer.room()});
    moves.push_back({drop, drop});
  }
  return moves;
}

}  // namespace memfloor

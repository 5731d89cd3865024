#include "techniques/sparsity/dsr.h"

#include <algorithm>

namespace memfloor {
namespace {

std::int64_t sum_of(const std::vector<LayerMove>& moves, std::int64_t LayerMove::*which) {
  std::int64_t sum = 0;
  for (const LayerMove& move : moves) sum += move.*which;
  return sum;
}

// Shares in proportion to what survives; what a full layer cannot take is shared out again among
// the others; what rounding leaves goes to a random layer, and on to the next where it is full.
void grow_in_proportion(const PatternEvent& event, std::vector<LayerMove>& moves) {
  const std::size_t layers = moves.size();
  const auto survivors = [&](std::size_t l) { return event.layers[l].non_zeros - moves[l].drop; };
  const auto room = [&](std::size_t l) { return event.layers[l].room() - moves[l].grow; };
  std::int64_t left = sum_of(moves, &LayerMove::drop);
  for (bool overflow = true; overflow && left > 0;) {
    overflow = false;
    std::int64_t sum = 0;
    for (std::size_t l = 0; l < layers; ++l)
      if (room(l) > 0) sum += survivors(l);
    const std::int64_t shared = left;
    for (std::size_t l = 0; l < layers; ++l) {
      if (room(l) <= 0) continue;
      const std::int64_t share = shared * survivors(l) / sum;
      overflow |= share > room(l);
      const std::int64_t taken = std::min(share, room(l));
      moves[l].grow += taken, left -= taken;
    }
  }
  const auto step = static_cast<std::uint32_t>(event.step);
  std::size_t l = uniform_below(event.random({step, PatternEvent::kMethodCounter, 0, 0})[0],
                                static_cast<std::uint32_t>(layers));
  for (; left > 0; l = (l + 1) % layers) {
    const std::int64_t taken = std::min(left, room(l));
    moves[l].grow += taken, left -= taken;
  }
}

}  // namespace

std::vector<LayerMove> Dsr::plan(const PatternEvent& event, float* threshold) const {
  std::vector<LayerMove> moves(event.layers.size());
  std::int64_t positions = 0, room = 0;
  for (std::size_t l = 0; l < moves.size(); ++l) {
    const LayerCounts& layer = event.layers[l];
    moves[l].drop = std::min(event.below(l, *threshold), layer.non_zeros - 1);
    positions += layer.elements, room += layer.room();
  }
  const std::int64_t dropped = sum_of(moves, &LayerMove::drop);
  if (dropped > room)
    for (LayerMove& move : moves) move.drop = move.drop * room / dropped;
  grow_in_proportion(event, moves);

  const auto wanted = static_cast<double>(rewire_target(positions));
  if (static_cast<double>(dropped) > 1.1 * wanted)
    *threshold /= 2;
  else if (static_cast<double>(dropped) < 0.9 * wanted)
    *threshold *= 2;
  return moves;
}

}  // namespace memfloor

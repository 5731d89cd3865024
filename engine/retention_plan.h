// Checkpointing's seam: which saved tensors survive from forward to backward.
//
// A model describes its forward pass as a chain of units and marks which borders are coarse
// (between blocks). What crosses a border is the list of values one unit hands to the next. A plan
// runs the chain: as it is, or dropping what a stretch of units saved and replaying it in backward.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/value.h"

namespace memfloor {

struct Context;

struct Unit {
  std::string name;
  bool block_border = false;  // after this unit a block ends
  std::function<Values(Context&, Values)> forward;
  // That backward reads of this unit's ops: of one sample, or of one position of a sentence.
  std::int64_t saved_elements = 0;
  /// Positions of inputs whose data no op reads in backward: what only becomes a summand of the
  /// outputs, and text.
  std::vector<std::size_t> summands{};
};
using Chain = std::vector<Unit>;

class RetentionPlan {
 public:
  virtual ~RetentionPlan() = default;
  virtual Values run(Context& context, const Chain& chain, Values inputs) const = 0;
};

/// Off: every saved tensor is kept.
class KeepAll final : public RetentionPlan {
 public:
  Values run(Context& context, const Chain& chain, Values values) const override {
    for (const Unit& unit : chain) values = unit.forward(context, std::move(values));
    return values;
  }
};

}  // namespace memfloor

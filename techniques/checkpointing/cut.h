// Rules that cut a stretch of the chain into segments, and how rules make a tree.
#pragma once

#include <functional>

#include "techniques/checkpointing/segment_tree.h"

namespace memfloor {

/// One level of a tree.
struct CutRule {
  /// Contiguous parts of the stretch, in order, covering it.
  std::function<std::vector<UnitRange>(const Chain&, UnitRange)> cut;
  bool repeat = false;  // the parts are cut by the same rule again, as far as it cuts
};

/// The first rule cuts the chain, the next one the segments that this gives, and so on. A segment
/// that a rule leaves in one piece goes to the rule after it.
SegmentTree make_tree(const Chain& chain, const std::vector<CutRule>& rules);

}  // namespace memfloor

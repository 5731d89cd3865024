// Retention plans as trees: segments of the chain, with segments inside them.
//
// A segment drops what its units saved and replays them in backward; the replay drops what its
// inner segments saved, and so on. Units outside all segments are kept. Any plan is such a tree.
#pragma once

#include <string>
#include <vector>

#include "engine/retention_plan.h"

namespace memfloor {

/// Units [begin, end) of a chain.
struct UnitRange {
  std::size_t begin = 0, end = 0;
  std::size_t size() const { return end - begin; }
  bool operator==(const UnitRange&) const = default;
};

struct SegmentNode {
  UnitRange units;
  std::vector<SegmentNode> inner;  // in order, disjoint, within `units`
  bool operator==(const SegmentNode&) const = default;
};
using SegmentTree = std::vector<SegmentNode>;

class TreePlan final : public RetentionPlan {
 public:
  explicit TreePlan(SegmentTree tree) : tree_(std::move(tree)) {}
  Values run(Context& context, const Chain& chain, Values inputs) const override;

 private:
  SegmentTree tree_;
};

/// "plan:0,1-8[1-2,3-4[3,4]],9-16": each segment's first and last unit, and what is inside it.
/// "none" without segments.
std::string to_text(const SegmentTree& tree);

/// Reads that form. Throws InputError where it is not that, where segments overlap or are out of
/// order, and where `chain` has no such units.
SegmentTree parse_tree(const std::string& text, const Chain& chain);

}  // namespace memfloor

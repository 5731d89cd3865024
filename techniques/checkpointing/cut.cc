#include "techniques/checkpointing/cut.h"

namespace memfloor {
namespace {

// `units` are those of a segment, or the whole chain.
SegmentTree cut_from(std::size_t level, const Chain& chain, UnitRange units, bool is_segment,
                     const std::vector<CutRule>& rules) {
  for (; level < rules.size(); ++level) {
    const CutRule& rule = rules[level];
    const std::vector<UnitRange> parts = rule.cut(chain, units);
    if (parts.size() == 1 && is_segment) continue;
    SegmentTree tree;
    for (const UnitRange& part : parts)
      tree.push_back({part, cut_from(rule.repeat ? level : level + 1, chain, part, true, rules)});
    return tree;
  }
  return {};
}

}  // namespace

SegmentTree make_tree(const Chain& chain, const std::vector<CutRule>& rules) {
  return cut_from(0, chain, {0, chain.size()}, false, rules);
}

}  // namespace memfloor

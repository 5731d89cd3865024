// The initial random pattern to the end: what moving the pattern is compared with.
#pragma once

#include "techniques/sparsity/rewire_schedule.h"
#include "techniques/sparsity/sparse_method.h"

namespace memfloor {

class StaticPattern final : public SparseMethod {
 public:
  explicit StaticPattern(const RewireSchedule&) {}
  bool moves() const override { return false; }
  bool moves_after(std::int64_t) const override { return false; }
  std::vector<LayerMove> plan(const PatternEvent& event, float*) const override {
    return std::vector<LayerMove>(event.layers.size());
  }
};

}  // namespace memfloor

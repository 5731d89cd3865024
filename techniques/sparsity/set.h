// Sparse evolutionary training (Mocanu et al., "Scalable training of artificial neural networks
// with adaptive sparse connectivity inspired by network science", Nature Communications 9:2383,
// 2018): every layer drops a fixed share of its weights, the smallest, and grows as many at random
// places.
#pragma once

#include "techniques/sparsity/rewire_schedule.h"
#include "techniques/sparsity/sparse_method.h"

namespace memfloor {

/// Our choices, so that the comparison with DSR is one of the rule alone: it rewires when DSR does,
/// and its share is DSR's target over the non-zeros (6.9 % at sparsity 0.8), at most the published
/// 0.3; the smallest magnitudes go, where the published code takes the smallest positive and the
/// largest negative weights. A layer drops no more than it has room for.
class Set final : public SparseMethod {
 public:
  explicit Set(const RewireSchedule& schedule) : schedule_(schedule) {}

  bool moves() const override { return true; }
  bool moves_after(std::int64_t step) const override { return schedule_.moves_after(step); }
  std::vector<LayerMove> plan(const PatternEvent& event, float* state) const override;
  std::string note() const override { return schedule_.note(); }

 private:
  RewireSchedule schedule_;
};

}  // namespace memfloor

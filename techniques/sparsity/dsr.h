// Dynamic sparse reparameterization (Mostafa and Wang 2019, arXiv:1902.05967, reference code): a
// global magnitude threshold decides what is dropped, layers that keep more grow more.
#pragma once

#include "techniques/sparsity/rewire_schedule.h"
#include "techniques/sparsity/sparse_method.h"

namespace memfloor {

/// Every event drops the weights with |w| < threshold, of each layer all but one at most; then the
/// threshold is halved if these were more than 1.1 times rewire_target() and doubled if fewer than
/// 0.9 times.
///
/// Should fewer positions be free than are to be dropped (only in nearly full networks), every
/// layer drops the same share less, and the threshold goes on following its own count: our choice.
class Dsr final : public SparseMethod {
 public:
  static constexpr float kFirstThreshold = 1e-3f;

  explicit Dsr(const RewireSchedule& schedule) : schedule_(schedule) {}

  bool moves() const override { return true; }
  bool moves_after(std::int64_t step) const override { return schedule_.moves_after(step); }
  std::int64_t state_size() const override { return 1; }  // the threshold
  void initialize(float* threshold) const override { *threshold = kFirstThreshold; }
  std::vector<LayerMove> plan(const PatternEvent& event, float* threshold) const override;
  std::string note() const override { return schedule_.note(); }

 private:
  RewireSchedule schedule_;
};

}  // namespace memfloor

// Parts of a fixed size; the last one takes what is left.
#pragma once

#include "engine/batch_plan.h"

namespace memfloor {

class FixedParts final : public BatchPlan {
 public:
  explicit FixedParts(std::int64_t samples) : samples_(samples) {}
  std::vector<Part> parts(std::int64_t samples) const override;

 private:
  std::int64_t samples_;
};

}  // namespace memfloor

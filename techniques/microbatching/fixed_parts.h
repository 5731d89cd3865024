// Parts up to a limit: a part's samples times the largest size among them. One sample always fits.
// For samples that are alike these are parts of a fixed number, of which the last takes the rest.
#pragma once

#include "engine/batch_plan.h"

namespace memfloor {

class FixedParts final : public BatchPlan {
 public:
  explicit FixedParts(std::int64_t limit) : limit_(limit) {}
  std::vector<Part> parts(const std::vector<std::int64_t>& sizes) const override;

 private:
  std::int64_t limit_;
};

}  // namespace memfloor

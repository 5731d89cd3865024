// Microbatching's seam: how one minibatch is cut into parts. The loss of every part is divided by
// the whole minibatch's count, so parts need no weights of their own.
#pragma once

#include <cstdint>
#include <vector>

namespace memfloor {

struct Part {
  std::int64_t first = 0, count = 0;  // samples of the minibatch
};

class BatchPlan {
 public:
  virtual ~BatchPlan() = default;
  /// Parts of a minibatch whose samples have these sizes (1 for an image, the longer side's
  /// positions for a pair of sentences), in order, covering it. `sizes` is not empty.
  virtual std::vector<Part> parts(const std::vector<std::int64_t>& sizes) const = 0;
};

/// Off: one part.
class WholeBatch final : public BatchPlan {
 public:
  std::vector<Part> parts(const std::vector<std::int64_t>& sizes) const override {
    return {{0, static_cast<std::int64_t>(sizes.size())}};
  }
};

}  // namespace memfloor

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
  /// Parts of a minibatch of `samples` > 0, in order, covering it.
  virtual std::vector<Part> parts(std::int64_t samples) const = 0;
};

/// Off: one part.
class WholeBatch final : public BatchPlan {
 public:
  std::vector<Part> parts(std::int64_t samples) const override { return {{0, samples}}; }
};

}  // namespace memfloor

// Batch norm's running mean and variance: proposed by the first pass over each part, never by a
// replay, and committed together with the update, so that a skipped update leaves no trace.
// Recalibration borrows the room of the proposals between minibatches, for evaluation only.
#pragma once

#include <string>
#include <vector>

#include "backends/backend.h"
#include "core/tensor.h"

namespace memfloor {

class RunningStatistics {
 public:
  using Handle = int;
  struct Entry {
    std::string name;  // "blocks.0.bn1"
    std::int64_t channels = 0;
    std::int64_t offset = 0;  // of (2, channels) in the slabs, elements
  };

  /// Before allocate().
  Handle add(std::string name, std::int64_t channels);
  void allocate(Ledger& ledger, TensorOps& ops);
  /// Mean 0, variance 1.
  void initialize();

  /// (2, channels): what evaluation uses: those that were recalibrated since the last minibatch
  /// began, else the committed ones.
  const float* evaluated(Handle handle) const {
    return at(recalibrated_ ? proposed_ : committed_, handle);
  }
  /// (2, channels): what the next part moves, by the share momentum().
  float* proposed(Handle handle) const { return at(proposed_, handle); }
  float momentum() const { return momentum_; }

  void begin_minibatch();
  void commit();

  /// Before part 0, 1, ... of a recalibration: proposals become the plain average over its parts.
  /// What is committed stays.
  void begin_recalibration_part(std::int64_t part);

  const std::vector<Entry>& entries() const { return entries_; }
  /// The committed ones.
  Tensor& slab() { return committed_; }

 private:
  float* at(const Tensor& slab, Handle handle) const {
    return slab.data<float>() + entries_[handle].offset;
  }

  std::vector<Entry> entries_;
  std::int64_t elements_ = 0;
  TensorOps* ops_ = nullptr;
  Tensor committed_, proposed_;
  float momentum_ = BatchNormRelu::kMomentum;
  bool recalibrated_ = false;  // proposed_ holds what evaluation shall use
};

}  // namespace memfloor

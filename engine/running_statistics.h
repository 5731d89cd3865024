// Batch norm's running mean and variance: proposed by the first pass over each part, never by a
// replay, and committed together with the update, so that a skipped update leaves no trace.
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

  /// (2, channels): what evaluation uses.
  const float* committed(Handle handle) const { return at(committed_, handle); }
  /// (2, channels): what this minibatch's parts move.
  float* proposed(Handle handle) const { return at(proposed_, handle); }

  void begin_minibatch();
  void commit();

  const std::vector<Entry>& entries() const { return entries_; }
  Tensor& slab() { return committed_; }

 private:
  float* at(const Tensor& slab, Handle handle) const {
    return slab.data<float>() + entries_[handle].offset;
  }

  std::vector<Entry> entries_;
  std::int64_t elements_ = 0;
  TensorOps* ops_ = nullptr;
  Tensor committed_, proposed_;
};

}  // namespace memfloor

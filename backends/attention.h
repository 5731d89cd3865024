// Scaled dot-product attention of every target sentence over its source sentence, with several
// heads (Vaswani et al. 2017). Projections are the caller's.
#pragma once

#include <compare>
#include <cstdint>

#include "backends/dropout.h"
#include "backends/sequences.h"
#include "core/dtype.h"

namespace memfloor {

struct AttentionDescriptor {
  std::int64_t channels = 0, heads = 1;
  Dtype dtype = Dtype::f32;  // of everything but scratch

  auto operator<=>(const AttentionDescriptor&) const = default;
};

/// In backward it reads q, k, v and the probabilities. A sentence's bits do not depend on the
/// others.
class Attention {
 public:
  explicit Attention(const AttentionDescriptor& d) : d_(d) {}
  virtual ~Attention() = default;

  /// Elements of the probabilities: for every pair of sentences (heads, target length, source
  /// length).
  std::int64_t probabilities(const Sequences& queries, const Sequences& keys) const {
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < queries.count(); ++i) sum += queries.length(i) * keys.length(i);
    return d_.heads * sum;
  }
  /// Bytes.
  virtual std::int64_t forward_scratch(const Sequences& queries, const Sequences& keys) const = 0;
  virtual std::int64_t backward_scratch(const Sequences& queries, const Sequences& keys) const = 0;

  /// y (rows of queries, channels) = dropout(softmax(q k^T / sqrt(channels / heads))) v, head by
  /// head. Probabilities are written before the dropout, whose row is the target position and whose
  /// column is (head, source position).
  virtual void forward(const Sequences& queries, const Sequences& keys, const Dropout& dropout,
                       const void* q, const void* k, const void* v, void* probabilities, void* y,
                       void* scratch) const = 0;

  /// dq, dk, dv are overwritten; dq may be dy.
  virtual void backward(const Sequences& queries, const Sequences& keys, const Dropout& dropout,
                        const void* q, const void* k, const void* v, const void* probabilities,
                        const void* dy, void* dq, void* dk, void* dv, void* scratch) const = 0;

 protected:
  AttentionDescriptor d_;
};

}  // namespace memfloor

// Cross-entropy with label smoothing (Szegedy et al. 2016) as fairseq and PyTorch have it: of C
// classes, every one gets smoothing / C of the target's probability, the label the rest more.
#pragma once

#include <compare>
#include <cstdint>

#include "backends/classifier.h"
#include "core/dtype.h"

namespace memfloor {

struct SmoothedCrossEntropyDescriptor {
  std::int64_t classes = 0;
  float smoothing = 0;

  auto operator<=>(const SmoothedCrossEntropyDescriptor&) const = default;
};

class SmoothedCrossEntropy {
 public:
  virtual ~SmoothedCrossEntropy() = default;

  /// logits (rows, classes) f32 become log-probabilities, in place. Adds the rows' losses and hits
  /// to `sums`, in an order fixed by `rows`.
  virtual void forward(std::int64_t rows, float* logits, const std::int32_t* labels,
                       LossSums* sums) const = 0;

  /// dlogits (rows, classes) of `dtype` = (softmax - target) * scale. dlogits may be
  /// log_probabilities.
  virtual void backward(std::int64_t rows, const float* log_probabilities,
                        const std::int32_t* labels, float scale, Dtype dtype,
                        void* dlogits) const = 0;
};

}  // namespace memfloor

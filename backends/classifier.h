// The end of a classifier: global average pooling, a linear layer, softmax cross-entropy.
// All of it in FP32 whatever the activations are: it is sensitive and tiny.
#pragma once

#include <compare>
#include <cstdint>

#include "core/dtype.h"

namespace memfloor {

struct GlobalAveragePoolDescriptor {
  std::int64_t images = 0, height = 0, width = 0, channels = 0;
  Dtype dtype = Dtype::f32;  // of x and dx
  auto operator<=>(const GlobalAveragePoolDescriptor&) const = default;
};

/// Reads nothing in backward.
class GlobalAveragePool {
 public:
  virtual ~GlobalAveragePool() = default;
  /// y (images, channels) f32 = mean of x (images, height, width, channels) over pixels.
  virtual void forward(const void* x, float* y) const = 0;
  /// dx = dy / pixels for every pixel.
  virtual void backward(const float* dy, void* dx) const = 0;
};

struct LinearDescriptor {
  std::int64_t rows = 0, inputs = 0, outputs = 0;
  std::int64_t multiply_adds() const { return rows * inputs * outputs; }
  auto operator<=>(const LinearDescriptor&) const = default;
};

/// y = x w^T + b; w (outputs, inputs). Reads its input in backward.
class Linear {
 public:
  virtual ~Linear() = default;
  virtual void forward(const float* x, const float* w, const float* b, float* y) const = 0;
  /// dx overwritten.
  virtual void backward_data(const float* dy, const float* w, float* dx) const = 0;
  /// dw (outputs, inputs) and db (outputs), overwritten.
  virtual void backward_weights(const float* x, const float* dy, float* dw, float* db) const = 0;
};

struct SoftmaxCrossEntropyDescriptor {
  std::int64_t rows = 0, classes = 0;
  auto operator<=>(const SoftmaxCrossEntropyDescriptor&) const = default;
};

/// Sums over the samples of a minibatch; kept on the device, added to by every part.
struct LossSums {
  double loss = 0;
  std::int64_t correct = 0;  // samples whose label has the highest logit (first on ties)
};

/// Reads the probabilities in backward.
class SoftmaxCrossEntropy {
 public:
  virtual ~SoftmaxCrossEntropy() = default;
  /// probabilities (rows, classes) = softmax(logits); adds the negative log-likelihoods to `sums`.
  virtual void forward(const float* logits, const std::int32_t* labels, float* probabilities,
                       LossSums* sums) const = 0;
  /// dlogits = (probabilities - onehot(labels)) * scale
  virtual void backward(const float* probabilities, const std::int32_t* labels, float scale,
                        float* dlogits) const = 0;
};

}  // namespace memfloor

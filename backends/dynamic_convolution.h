// The dynamic convolution of Wu, Fan, Baevski, Dauphin and Auli, "Pay less attention with
// lightweight and dynamic convolutions" (ICLR 2019): a depthwise convolution along a sentence whose
// kernel is predicted at every position, one for each head.
//
//   y[t, c] = sum over k of d[t, h(c), k] * x[t + k - left, c],   d = dropout(kernels)
//
// where positions outside the sentence are zero, head h owns channels / heads neighbouring
// channels, and `kernels` are softmax-normalised already.
#pragma once

#include <compare>
#include <cstdint>

#include "backends/dropout.h"
#include "backends/sequences.h"
#include "core/dtype.h"

namespace memfloor {

/// band: what fairseq trains with: a sentence's kernels are expanded to a matrix (length, length +
/// kernel - 1) for every head and multiplied with the input in head-major order; both are kept for
/// backward. direct: keeps nothing beyond its input and the kernels.
enum class DynamicConvolutionMethod : std::uint8_t { band, direct };

struct DynamicConvolutionDescriptor {
  std::int64_t channels = 0, heads = 1;
  int kernel = 3;
  int left = 1;              // kernel / 2, or kernel - 1 where it is causal
  Dtype dtype = Dtype::f32;  // of x, kernels, y, what is saved, and gradients
  DynamicConvolutionMethod method = DynamicConvolutionMethod::direct;

  auto operator<=>(const DynamicConvolutionDescriptor&) const = default;
};

/// In backward `direct` reads x and the kernels, `band` the kernels and what it saved.
class DynamicConvolution {
 public:
  virtual ~DynamicConvolution() = default;

  /// Elements (of dtype) of what forward saves beside x and the kernels: 0 for `direct`; for `band`
  /// rows * channels and, for every sentence and head, length * (length + kernel - 1).
  virtual std::int64_t saved_elements(const Sequences& sequences) const = 0;
  /// Bytes.
  virtual std::int64_t forward_scratch(const Sequences& sequences) const = 0;
  virtual std::int64_t backward_scratch(const Sequences& sequences) const = 0;

  /// x, y (rows, channels), kernels (rows, heads, kernel). A sentence's bits do not depend on the
  /// other sentences. The dropout's column is head * kernel + k.
  virtual void forward(const Sequences& sequences, const Dropout& dropout, const void* x,
                       const void* kernels, void* saved, void* y, void* scratch) const = 0;

  /// dx (rows, channels) and dkernels (rows, heads, kernel; of the kernels before the dropout) are
  /// overwritten. x is not read by `band`, saved not by `direct`.
  virtual void backward(const Sequences& sequences, const Dropout& dropout, const void* x,
                        const void* kernels, const void* saved, const void* dy, void* dx,
                        void* dkernels, void* scratch) const = 0;
};

}  // namespace memfloor

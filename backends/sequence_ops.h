// Small ops on rows that belong to sentences; no op keeps anything or needs scratch.
#pragma once

#include <cstdint>

#include "backends/dropout.h"
#include "backends/dynamic_convolution.h"
#include "backends/sequences.h"
#include "core/dtype.h"

namespace memfloor {

class SequenceOps {
 public:
  virtual ~SequenceOps() = default;

  /// y = dropout(x), both (rows, columns); y may be x.
  virtual void dropout(const Sequences& sequences, const Dropout& dropout, std::int64_t columns,
                       Dtype dtype, const void* x, void* y) = 0;
  /// y = residual + dropout(x); y may be either.
  virtual void add_dropout(const Sequences& sequences, const Dropout& dropout, std::int64_t columns,
                           Dtype dtype, const void* residual, const void* x, void* y) = 0;

  /// x = dropout(scale * x + sinusoid), in place. Of position p, channel c < channels / 2 is
  /// sin(p f_c) and channel c + channels / 2 is cos(p f_c), where f_c = 10000^(-c / (channels / 2 -
  /// 1)), as fairseq has it; every sentence's first row has position `first_position`.
  virtual void add_positions(const Sequences& sequences, const Dropout& dropout, float scale,
                             std::int64_t first_position, std::int64_t channels, Dtype dtype,
                             void* x) = 0;
  /// dx becomes the gradient of what add_positions was given: scale * dropout(dx).
  virtual void add_positions_backward(const Sequences& sequences, const Dropout& dropout,
                                      float scale, std::int64_t channels, Dtype dtype,
                                      void* dx) = 0;

  /// A causal dynamic convolution (see DynamicConvolution) at one position of sentences that grow a
  /// position at a time, each in a row: inputs (rows, kernel, channels) hold what it reads, of
  /// position p in slot p % kernel; kernels (rows, heads, kernel) are those of `position`, its
  /// output is y (rows, channels).
  virtual void convolve_position(std::int64_t rows, std::int64_t position,
                                 const DynamicConvolutionDescriptor& descriptor, const void* inputs,
                                 const void* kernels, void* y) = 0;

  /// dy = 0 where y, the output of a ReLU, is not above 0.
  virtual void mask_relu(std::int64_t elements, Dtype dtype, const void* y, void* dy) = 0;

  /// x (rows, groups, width): softmax over the width, in FP32, in place.
  virtual void softmax(std::int64_t rows, std::int64_t groups, std::int64_t width, Dtype dtype,
                       void* x) = 0;
  /// dy becomes the gradient of softmax's input, y being its output.
  virtual void softmax_backward(std::int64_t rows, std::int64_t groups, std::int64_t width,
                                Dtype dtype, const void* y, void* dy) = 0;
};

}  // namespace memfloor

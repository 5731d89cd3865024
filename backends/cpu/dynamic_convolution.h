// What the methods of the dynamic convolution share.
#pragma once

#include <algorithm>
#include <memory>

#include "backends/cpu/small_products.h"
#include "backends/cpu/thread_pool.h"
#include "backends/dynamic_convolution.h"

namespace memfloor::cpu {

std::unique_ptr<DynamicConvolution> make_direct_convolution(const DynamicConvolutionDescriptor&,
                                                            ThreadPool&);
std::unique_ptr<DynamicConvolution> make_band_convolution(const DynamicConvolutionDescriptor&,
                                                          ThreadPool&);

/// row[i] *= values[i]
template <class T>
void multiply_row(float* row, const T* values, std::int64_t count) {
  for_lanes(count, [&](std::int64_t i, auto width) {
    store(row + i, load(row + i, width) * load(values + i, width), width);
  });
}

/// The gradient of a position's dropped kernel of one head: to[k] = sum over the head's channels of
/// dy * x[t + k - left], 0 where that is outside the sentence. dy: of position t; x: of the
/// sentence; both from the head's first channel on.
template <class T>
void kernel_gradient(const DynamicConvolutionDescriptor& d, std::int64_t t, std::int64_t length,
                     const T* dy, const MatrixView<const T>& x, float* to) {
  const std::int64_t first = std::max<std::int64_t>(0, d.left - t);
  const std::int64_t last = std::min<std::int64_t>(d.kernel, length - t + d.left);
  std::fill(to, to + first, 0.0f);
  std::fill(to + last, to + d.kernel, 0.0f);
  multiply_transposed(last - first, d.channels / d.heads, dy,
                      MatrixView<const T>{x.at(t + first - d.left, 0), x.row}, 1.0f, to + first);
}

}  // namespace memfloor::cpu

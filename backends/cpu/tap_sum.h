// A convolution's forward and backward-data pass as what both are: a sum over taps.
#pragma once

#include "backends/cpu/convolution_kernels.h"
#include "backends/cpu/simd_strips.h"

namespace memfloor::cpu {

/// A pixel that an output pixel reads, so many rows and columns from where it is itself, and its
/// place among the weights' taps.
struct Tap {
  std::int64_t row, column;
  int index;
};

/// Output pixels that read the same taps: all of them, or every other one of every other row.
struct Phase {
  std::int64_t rows, columns;  // of the grid; the last ones may be missing
  std::int64_t row, column;    // of its first pixel in the image
  int taps = 0;
  Tap tap[9];
};

/// A pass as a sum over taps. An output pixel is where it is in the grid times `spread`, and reads
/// around where it is times the grid's step.
struct TapSum {
  StripGrid grid;
  std::int64_t in_width, out_height, out_width;
  std::int64_t ci, co;  // of what is read and written
  std::int64_t spread;
  int taps;  // of the weights
  int phases = 0;
  Phase phase[4];
};

/// Kernels 1x1 and 3x3, strides 1 and 2.
TapSum tap_sum(const ConvolutionDescriptor& d, SlicePass pass);

}  // namespace memfloor::cpu

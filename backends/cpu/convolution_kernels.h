// The kernels that a convolution on the CPU can be made of. CpuConvolution (convolution.cc) picks
// one for each direction; each factory returns null where its kernel does not serve the shape or
// the CPU.
#pragma once

#include <memory>

#include "backends/convolution.h"
#include "backends/cpu/thread_pool.h"

namespace memfloor::cpu {

enum class SlicePass { forward, backward_data };

/// A band of the rows of every image: one of `count`.
struct Band {
  std::int64_t index = 0, count = 1;
};

/// Rows [first, last) of an image.
struct RowRange {
  std::int64_t first, last;
};

/// Rows and channels [first, last) of an image.
struct Region {
  std::int64_t first_row, last_row, first_channel, last_channel;
};

/// Forward (x to y) or backward-data (dy to dx) over a slice of a few images, run by one thread.
class SliceKernel {
 public:
  virtual ~SliceKernel() = default;
  virtual void run(int thread, const Band& band, const void* in, const void* weights, void* out,
                   void* scratch) const = 0;
  /// What a band writes of every image of `out`, where there are several.
  virtual Region region(const Band& /*band*/) const { return {}; }

  std::int64_t bands = 1;          // the most
  WeightLayout weights;            // the order it reads them in, or
  NonZeroLayout non_zeros;         // the non-zeros it reads
  std::int64_t scratch_bytes = 0;  // a thread
};

/// dw over a whole batch, overwritten.
class WeightGradientKernel {
 public:
  virtual ~WeightGradientKernel() = default;
  virtual void run(const void* x, const void* dy, float* dw, void* scratch) const = 0;

  WeightLayout gradient;           // the order it writes
  std::int64_t scratch_bytes = 0;  // all threads together
};

// oneDNN, operands as stored. `slice.images` is the slice.
std::unique_ptr<SliceKernel> make_onednn_slice(const ConvolutionDescriptor& slice, SlicePass pass,
                                               int threads);
std::unique_ptr<WeightGradientKernel> make_onednn_weight_gradient(
    const ConvolutionDescriptor& whole, ThreadPool& pool);

// f32 kernels for 16-bit operands: a slice is widened into scratch and narrowed again.
std::unique_ptr<SliceKernel> make_widened_slice(const ConvolutionDescriptor& slice, SlicePass pass,
                                                int threads);
std::unique_ptr<WeightGradientKernel> make_widened_weight_gradient(
    const ConvolutionDescriptor& whole, ThreadPool& pool);

// Our own, where oneDNN leaves much of the machine unused: FP32 arithmetic in the vectors that this
// was compiled for, of operands in any format, and BF16's weight gradient on AMX. Null for other
// shapes, formats and CPUs.
std::unique_ptr<SliceKernel> make_simd_slice(const ConvolutionDescriptor& slice, SlicePass pass);
// The same sums of compressed weights, whose non-zeros alone are read.
std::unique_ptr<SliceKernel> make_sparse_slice(const ConvolutionDescriptor& slice, SlicePass pass);
std::unique_ptr<WeightGradientKernel> make_simd_weight_gradient(const ConvolutionDescriptor& whole,
                                                                ThreadPool& pool);
std::unique_ptr<WeightGradientKernel> make_amx_weight_gradient(const ConvolutionDescriptor& whole,
                                                               ThreadPool& pool);

}  // namespace memfloor::cpu

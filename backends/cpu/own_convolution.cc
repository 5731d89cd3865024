// Our own convolution kernels, in the form that CpuConvolution picks from.
#include "backends/cpu/amx_weight_gradient.h"
#include "backends/cpu/convert.h"
#include "backends/cpu/convolution_kernels.h"
#include "backends/cpu/simd_convolution.h"
#include "core/ledger.h"

namespace memfloor::cpu {
namespace {

SimdShape simd_shape(const ConvolutionDescriptor& d) {
  return {d.height, d.width, d.channels_in, d.channels_out};
}

bool simd_serves(const ConvolutionDescriptor& d) {
  return simd_convolution_serves(simd_shape(d), d.kernel, d.stride);
}

// Backward-data is the forward kernel with the channels swapped and the taps flipped.
class SimdSlice final : public SliceKernel {
 public:
  SimdSlice(const ConvolutionDescriptor& d, SlicePass pass)
      : shape_(simd_shape(d)), dtype_(d.dtype), images_(d.images) {
    const auto layout =
        pass == SlicePass::forward ? simd_forward_layout : simd_backward_data_layout;
    weights = layout(d.channels_in, d.channels_out, d.dtype);
    if (pass == SlicePass::backward_data) std::swap(shape_.ci, shape_.co);
    with_dtype(dtype_, [&](auto element) {
      scratch_bytes = aligned(simd_convolution_scratch_bytes<decltype(element)>(shape_, images_));
    });
  }
  void run(int, const void* in, const void* packed, void* out, void* scratch) const override {
    with_dtype(dtype_, [&](auto element) {
      using T = decltype(element);
      simd_convolution(shape_, images_, static_cast<const T*>(in), static_cast<const T*>(packed),
                       static_cast<T*>(out), static_cast<float*>(scratch));
    });
  }

 private:
  SimdShape shape_;
  Dtype dtype_;
  std::int64_t images_;
};

// Pieces of the weights need no partial sums of theirs, whatever the number of threads.
class SimdWeightGradient final : public WeightGradientKernel {
 public:
  SimdWeightGradient(const ConvolutionDescriptor& d, ThreadPool& pool)
      : shape_(simd_shape(d)),
        dtype_(d.dtype),
        images_(d.images),
        thread_bytes_(aligned(simd_weight_gradient_scratch_bytes(shape_))),
        pool_(pool) {
    gradient = WeightLayout::ohwi(d.channels_out, 9, d.channels_in, Dtype::f32);
    scratch_bytes = pool.threads() * thread_bytes_;
  }
  void run(const void* x, const void* dy, float* dw, void* scratch) const override {
    const std::int64_t across = shape_.ci / kSimdChannels;
    pool_.parallel_for(shape_.co / kSimdChannels * across, [&](std::int64_t piece, int thread) {
      auto* mine = reinterpret_cast<float*>(static_cast<char*>(scratch) + thread * thread_bytes_);
      with_dtype(dtype_, [&](auto element) {
        using T = decltype(element);
        simd_weight_gradient(shape_, images_, piece / across * kSimdChannels,
                             piece % across * kSimdChannels, static_cast<const T*>(x),
                             static_cast<const T*>(dy), dw, mine);
      });
    });
  }

 private:
  SimdShape shape_;
  Dtype dtype_;
  std::int64_t images_;
  std::int64_t thread_bytes_;
  ThreadPool& pool_;
};

class AmxWeightGradient final : public WeightGradientKernel {
 public:
  AmxWeightGradient(const ConvolutionDescriptor& d, ThreadPool& pool)
      : shape_{static_cast<int>(d.images),
               static_cast<int>(d.height),
               static_cast<int>(d.width),
               static_cast<int>(d.channels_in),
               static_cast<int>(d.channels_out),
               d.kernel,
               d.stride},
        pool_(pool) {
    gradient = WeightLayout::ohwi(d.channels_out, d.kernel * d.kernel, d.channels_in, Dtype::f32);
    scratch_bytes = amx_weight_gradient_scratch_bytes(shape_, pool.threads());
  }
  void run(const void* x, const void* dy, float* dw, void* scratch) const override {
    amx_weight_gradient(shape_, static_cast<const Bf16*>(x), static_cast<const Bf16*>(dy), dw,
                        scratch, pool_);
  }

 private:
  WeightGradientShape shape_;
  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<SliceKernel> make_simd_slice(const ConvolutionDescriptor& slice, SlicePass pass) {
  if (!simd_serves(slice)) return nullptr;
  return std::make_unique<SimdSlice>(slice, pass);
}

std::unique_ptr<WeightGradientKernel> make_simd_weight_gradient(const ConvolutionDescriptor& whole,
                                                                ThreadPool& pool) {
  if (!simd_serves(whole)) return nullptr;
  return std::make_unique<SimdWeightGradient>(whole, pool);
}

std::unique_ptr<WeightGradientKernel> make_amx_weight_gradient(const ConvolutionDescriptor& whole,
                                                               ThreadPool& pool) {
  if (whole.dtype != Dtype::bf16 || !amx_available()) return nullptr;
  return std::make_unique<AmxWeightGradient>(whole, pool);
}

}  // namespace memfloor::cpu

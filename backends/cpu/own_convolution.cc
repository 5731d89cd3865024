// Our own convolution kernels, in the form that CpuConvolution picks from.
#include "backends/cpu/amx_weight_gradient.h"
#include "backends/cpu/avx512_convolution.h"
#include "backends/cpu/convolution_kernels.h"

namespace memfloor::cpu {
namespace {

Avx512Shape avx512_shape(const ConvolutionDescriptor& d) {
  return {d.height, d.width, d.channels_in, d.channels_out};
}

bool avx512_serves(const ConvolutionDescriptor& d) {
  return d.dtype == Dtype::f32 && avx512_available() &&
         avx512_convolution_supports(avx512_shape(d), d.kernel, d.stride);
}

// Backward-data is the forward kernel with the channels swapped and the taps flipped.
class Avx512Slice final : public SliceKernel {
 public:
  Avx512Slice(const ConvolutionDescriptor& d, SlicePass pass)
      : shape_(avx512_shape(d)), images_(d.images) {
    weights = pass == SlicePass::forward
                  ? avx512_forward_layout(d.channels_in, d.channels_out)
                  : avx512_backward_data_layout(d.channels_in, d.channels_out);
    if (pass == SlicePass::backward_data) std::swap(shape_.ci, shape_.co);
  }
  void run(int, const void* in, const void* packed, void* out, void*) const override {
    avx512_convolution(shape_, images_, static_cast<const float*>(in),
                       static_cast<const float*>(packed), static_cast<float*>(out));
  }

 private:
  Avx512Shape shape_;
  std::int64_t images_;
};

class Avx512WeightGradient final : public WeightGradientKernel {
 public:
  Avx512WeightGradient(const ConvolutionDescriptor& d, ThreadPool& pool)
      : shape_(avx512_shape(d)), images_(d.images), pool_(pool) {
    gradient = WeightLayout::ohwi(d.channels_out, 9, d.channels_in, Dtype::f32);
  }
  void run(const void* x, const void* dy, float* dw, void*) const override {
    avx512_weight_gradient(shape_, images_, static_cast<const float*>(x),
                           static_cast<const float*>(dy), dw, pool_);
  }

 private:
  Avx512Shape shape_;
  std::int64_t images_;
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

std::unique_ptr<SliceKernel> make_avx512_slice(const ConvolutionDescriptor& slice, SlicePass pass) {
  if (!avx512_serves(slice)) return nullptr;
  return std::make_unique<Avx512Slice>(slice, pass);
}

std::unique_ptr<WeightGradientKernel> make_avx512_weight_gradient(
    const ConvolutionDescriptor& whole, ThreadPool& pool) {
  if (!avx512_serves(whole)) return nullptr;
  return std::make_unique<Avx512WeightGradient>(whole, pool);
}

std::unique_ptr<WeightGradientKernel> make_amx_weight_gradient(const ConvolutionDescriptor& whole,
                                                               ThreadPool& pool) {
  if (whole.dtype != Dtype::bf16 || !amx_available()) return nullptr;
  return std::make_unique<AmxWeightGradient>(whole, pool);
}

}  // namespace memfloor::cpu

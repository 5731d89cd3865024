// Our own convolution kernels, in the form that CpuConvolution picks from.
#include "backends/cpu/amx_weight_gradient.h"
#include "backends/cpu/convert.h"
#include "backends/cpu/convolution_kernels.h"
#include "backends/cpu/simd_convolution.h"
#include "backends/cpu/sparse_convolution.h"
#include "core/ledger.h"

namespace memfloor::cpu {
namespace {

class SimdSlice final : public SliceKernel {
 public:
  SimdSlice(const ConvolutionDescriptor& d, SlicePass pass) : d_(d), pass_(pass) {
    bands = simd_convolution_bands(d, pass);
    weights = simd_weights(d, pass);
    scratch_bytes = aligned(simd_convolution_scratch_bytes(d, pass));
  }
  Region region(const Band& band) const override {
    const RowRange rows = simd_band_rows(d_, pass_, band);
    return {rows.first, rows.last, 0,
            pass_ == SlicePass::forward ? d_.channels_out : d_.channels_in};
  }
  void run(int, const Band& band, const void* in, const void* packed, void* out,
           void* scratch) const override {
    with_dtype(d_.dtype, [&](auto element) {
      using T = decltype(element);
      simd_convolution(d_, pass_, static_cast<const T*>(in), static_cast<const float*>(packed),
                       static_cast<T*>(out), static_cast<float*>(scratch), band);
    });
  }

 private:
  const ConvolutionDescriptor d_;
  const SlicePass pass_;
};

class SparseSlice final : public SliceKernel {
 public:
  SparseSlice(const ConvolutionDescriptor& d, SlicePass pass) : d_(d), pass_(pass) {
    bands = sparse_convolution_bands(d, pass);
    non_zeros = sparse_convolution_layout(d, pass);
    scratch_bytes = aligned(sparse_convolution_scratch_bytes(d, pass));
  }
  Region region(const Band& band) const override { return sparse_band_region(d_, pass_, band); }
  void run(int, const Band& band, const void* in, const void* packed, void* out,
           void* scratch) const override {
    with_dtype(d_.dtype, [&](auto element) {
      using T = decltype(element);
      sparse_convolution(d_, pass_, static_cast<const T*>(in), non_zeros, packed,
                         static_cast<T*>(out), static_cast<float*>(scratch), band);
    });
  }

 private:
  const ConvolutionDescriptor d_;
  const SlicePass pass_;
};

// Pieces of the weights need no partial sums of theirs, whatever the number of threads.
class SimdWeightGradient final : public WeightGradientKernel {
 public:
  SimdWeightGradient(const ConvolutionDescriptor& d, ThreadPool& pool)
      : d_(d), thread_bytes_(aligned(simd_weight_gradient_scratch_bytes(d))), pool_(pool) {
    gradient = WeightLayout::ohwi(d.channels_out, d.kernel * d.kernel, d.channels_in, Dtype::f32);
    scratch_bytes = pool.threads() * thread_bytes_;
  }
  void run(const void* x, const void* dy, float* dw, void* scratch) const override {
    const std::int64_t across = d_.channels_in / kSimdChannels;
    pool_.parallel_for(d_.channels_out / kSimdChannels * across, [&](std::int64_t piece,
                                                                     int thread) {
      auto* mine = reinterpret_cast<float*>(static_cast<char*>(scratch) + thread * thread_bytes_);
      with_dtype(d_.dtype, [&](auto element) {
        using T = decltype(element);
        simd_weight_gradient(d_, piece / across * kSimdChannels, piece % across * kSimdChannels,
                             static_cast<const T*>(x), static_cast<const T*>(dy), dw, mine);
      });
    });
  }

 private:
  const ConvolutionDescriptor d_;
  const std::int64_t thread_bytes_;
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
  if (!simd_convolution_serves(slice)) return nullptr;
  return std::make_unique<SimdSlice>(slice, pass);
}

std::unique_ptr<SliceKernel> make_sparse_slice(const ConvolutionDescriptor& slice, SlicePass pass) {
  if (!sparse_convolution_serves(slice, pass)) return nullptr;
  return std::make_unique<SparseSlice>(slice, pass);
}

std::unique_ptr<WeightGradientKernel> make_simd_weight_gradient(const ConvolutionDescriptor& whole,
                                                                ThreadPool& pool) {
  if (!simd_convolution_serves(whole)) return nullptr;
  return std::make_unique<SimdWeightGradient>(whole, pool);
}

std::unique_ptr<WeightGradientKernel> make_amx_weight_gradient(const ConvolutionDescriptor& whole,
                                                               ThreadPool& pool) {
  if (whole.dtype != Dtype::bf16 || !amx_available()) return nullptr;
  return std::make_unique<AmxWeightGradient>(whole, pool);
}

}  // namespace memfloor::cpu

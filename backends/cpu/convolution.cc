// Convolution on the CPU: picks a kernel for each direction, cuts the batch into slices of a few
// images, and finishes every slice (residual, statistics, sums) while it is in the cache. The
// images of a small batch are cut into bands of rows, so that threads share the last ones too; they
// are finished when all are done.
#include <algorithm>

#include "backends/cpu/channel_statistics.h"
#include "backends/cpu/convert.h"
#include "backends/cpu/convolution_kernels.h"
#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/masked_gradient.h"
#include "backends/cpu/slices.h"
#include "core/ledger.h"

namespace memfloor::cpu {
namespace {

constexpr std::int64_t kSlicePixels =
    2048;  // output pixels of a slice: amortises a call, stays in L2
constexpr std::int64_t kSliceImages = 8;
constexpr std::int64_t kBandedImages = 16;  // of fewer, the last one would be waited for too long
constexpr std::int64_t kLeastSlices = 4;    // of a small batch too: one slice is one thread

class CpuConvolution final : public Convolution {
 public:
  CpuConvolution(const ConvolutionDescriptor& d, ThreadPool& pool)
      : d_(d), pool_(pool), pixels_out_(d.out_height() * d.out_width()) {
    x_image_ = d.height * d.width * d.channels_in;
    y_image_ = pixels_out_ * d.channels_out;
    const std::int64_t most = std::min(kSlicePixels / pixels_out_, d.images / kLeastSlices);
    slice_ = largest_divisor(d.images, std::clamp<std::int64_t>(most, 1, kSliceImages));
    forward_ = pick_slice(SlicePass::forward);
    backward_data_ = pick_slice(SlicePass::backward_data);
    sparse_forward_ = pick_sparse_slice(*forward_, SlicePass::forward);
    sparse_backward_data_ = pick_sparse_slice(*backward_data_, SlicePass::backward_data);
    backward_weights_ = pick_weight_gradient();

    plan_.multiply_adds = d.images * y_image_ * d.channels_in * d.kernel * d.kernel;
    plan_.forward_weights = forward_->weights;
    plan_.backward_weights = backward_data_->weights;
    plan_.gradient = backward_weights_->gradient;
    sum_bytes_ = aligned(slice_ * x_image_ * element());
    plan_.forward_scratch = pool.threads() * forward_->scratch_bytes;
    plan_.backward_data_scratch = pool.threads() * (sum_bytes_ + backward_data_->scratch_bytes);
    plan_.backward_weights_scratch = backward_weights_->scratch_bytes;
    if (sparse_forward_) {
      plan_.forward_non_zeros = sparse_forward_->non_zeros;
      plan_.forward_non_zeros_scratch = pool.threads() * sparse_forward_->scratch_bytes;
    }
    if (sparse_backward_data_) {
      plan_.backward_non_zeros = sparse_backward_data_->non_zeros;
      plan_.backward_data_non_zeros_scratch =
          pool.threads() * (sum_bytes_ + sparse_backward_data_->scratch_bytes);
    }
  }

  void forward(const void* x, const PackedWeights& weights, const void* residual, void* y,
               float* statistics, void* scratch) const override {
    const SliceKernel& kernel = weights.non_zeros ? *sparse_forward_ : *forward_;
    const auto finish = [&](std::int64_t s) {
      if (!residual && !statistics) return;
      with_dtype(d_.dtype, [&](auto element) {
        using T = decltype(element);
        for (std::int64_t image = s * slice_; image < (s + 1) * slice_; ++image)
          channel_statistics(
              static_cast<T*>(y) + image * y_image_,
              residual ? static_cast<const T*>(residual) + image * y_image_ : nullptr, pixels_out_,
              d_.channels_out, statistics ? statistics + image * 2 * d_.channels_out : nullptr);
      });
    };
    for_each_band(kernel, finish, [&](std::int64_t s, const Band& band, int thread) {
      kernel.run(thread, band, at(x, s * slice_ * x_image_), weights.data,
                 at(y, s * slice_ * y_image_),
                 static_cast<char*>(scratch) + thread * kernel.scratch_bytes);
    });
  }

  void backward_data(const void* dy, const PackedWeights& weights, void* dx, bool accumulate,
                     const MaskedGradientSums* masked, void* scratch) const override {
    const SliceKernel& kernel = weights.non_zeros ? *sparse_backward_data_ : *backward_data_;
    const auto finish = [&](std::int64_t s) {
      if (!masked) return;
      with_dtype(d_.dtype, [&](auto element) {
        using T = decltype(element);
        for (std::int64_t image = s * slice_; image < (s + 1) * slice_; ++image)
          mask_and_sum(static_cast<const T*>(masked->x) + image * x_image_,
                       static_cast<const T*>(masked->y) + image * x_image_,
                       static_cast<T*>(dx) + image * x_image_, masked->mean, d_.height * d_.width,
                       d_.channels_in, masked->sums + image * 2 * d_.channels_in);
      });
    };
    for_each_band(kernel, finish, [&](std::int64_t s, const Band& band, int thread) {
      char* sum = static_cast<char*>(scratch) + thread * (sum_bytes_ + kernel.scratch_bytes);
      void* to = at(dx, s * slice_ * x_image_);
      kernel.run(thread, band, at(dy, s * slice_ * y_image_), weights.data, accumulate ? sum : to,
                 sum + sum_bytes_);
      if (!accumulate) return;
      if (band.count == 1)
        add_same(sum, d_.dtype, to, slice_ * x_image_);
      else
        add_region(sum, kernel.region(band), to);
    });
  }

  void backward_weights(const void* x, const void* dy, float* dw, void* scratch) const override {
    backward_weights_->run(x, dy, dw, scratch);
  }

 private:
  /// run(slice, band, thread) over all of them, and finish(slice) after all bands of a slice.
  template <class Finish, class Run>
  void for_each_band(const SliceKernel& kernel, Finish&& finish, Run&& run) const {
    const std::int64_t slices = d_.images / slice_;
    const std::int64_t bands = slice_ == 1 && slices < kBandedImages ? kernel.bands : 1;
    pool_.parallel_for(slices * bands, [&](std::int64_t piece, int thread) {
      run(piece / bands, Band{piece % bands, bands}, thread);
      if (bands == 1) finish(piece);
    });
    if (bands > 1) pool_.parallel_for(slices, [&](std::int64_t s, int) { finish(s); });
  }

  /// A part of an image of dx: to += sum.
  void add_region(const void* sum, const Region& region, void* to) const {
    const std::int64_t channels = region.last_channel - region.first_channel;
    const bool all = channels == d_.channels_in;  // rows are one piece
    const std::int64_t pieces = all ? 1 : (region.last_row - region.first_row) * d_.width;
    const std::int64_t size =
        all ? (region.last_row - region.first_row) * d_.width * channels : channels;
    std::int64_t first = region.first_row * d_.width * d_.channels_in + region.first_channel;
    for (std::int64_t p = 0; p < pieces; ++p, first += d_.channels_in)
      add_same(at(sum, first), d_.dtype, at(to, first), size);
  }

  ConvolutionDescriptor slice() const {
    ConvolutionDescriptor slice = d_;
    slice.images = slice_;
    return slice;
  }

  std::unique_ptr<SliceKernel> pick_slice(SlicePass pass) const {
    const auto native = [&] { return make_onednn_slice(slice(), pass, pool_.threads()); };
    if (prefers_onednn())
      if (auto kernel = native()) return kernel;
    if (auto kernel = make_simd_slice(slice(), pass)) return kernel;
    if (auto kernel = native()) return kernel;
    return make_widened_slice(slice(), pass, pool_.threads());
  }

  // Where 16 bits are multiplied as such, all of them are done sooner than a fifth in FP32.
  std::unique_ptr<SliceKernel> pick_sparse_slice(const SliceKernel& dense, SlicePass pass) const {
    return dense.weights.dtype == Dtype::f32 ? make_sparse_slice(slice(), pass) : nullptr;
  }

  std::unique_ptr<WeightGradientKernel> pick_weight_gradient() const {
    if (auto kernel = make_amx_weight_gradient(d_, pool_)) return kernel;
    const auto native = [&] { return make_onednn_weight_gradient(d_, pool_); };
    if (prefers_onednn())
      if (auto kernel = native()) return kernel;
    if (auto kernel = make_simd_weight_gradient(d_, pool_)) return kernel;
    if (auto kernel = native()) return kernel;
    return make_widened_weight_gradient(d_, pool_);
  }

  // Its kernels for 16 bits, on CPUs for which it has them, use instructions that ours don't.
  bool prefers_onednn() const { return d_.dtype != Dtype::f32; }

  std::int64_t element() const { return static_cast<std::int64_t>(size_of(d_.dtype)); }
  const void* at(const void* base, std::int64_t index) const {
    return static_cast<const char*>(base) + index * element();
  }
  void* at(void* base, std::int64_t index) const {
    return static_cast<char*>(base) + index * element();
  }

  const ConvolutionDescriptor d_;
  ThreadPool& pool_;
  std::int64_t pixels_out_, x_image_ = 0, y_image_ = 0;  // of one image; elements
  std::int64_t slice_ = 1;                               // images
  std::int64_t sum_bytes_ =
      0;  // a thread's copy of a slice of dx, where it is added to another gradient
  std::unique_ptr<SliceKernel> forward_, backward_data_;
  std::unique_ptr<SliceKernel> sparse_forward_, sparse_backward_data_;  // null: there is none
  std::unique_ptr<WeightGradientKernel> backward_weights_;
};

}  // namespace

std::unique_ptr<Convolution> make_convolution(const ConvolutionDescriptor& descriptor,
                                              ThreadPool& pool) {
  return std::make_unique<CpuConvolution>(descriptor, pool);
}

}  // namespace memfloor::cpu

// Forward and backward-data convolution kernels on oneDNN: single-threaded primitives, scratch from
// the caller.
#include <algorithm>
#include <optional>

#include "backends/cpu/convert.h"
#include "backends/cpu/convolution_kernels.h"
#include "backends/cpu/onednn_primitive.h"

namespace memfloor::cpu {
namespace {

class OnednnSlice final : public SliceKernel {
 public:
  OnednnSlice(const ConvolutionDescriptor& d, SlicePass pass, int threads) {
    if (pass == SlicePass::forward) {
      bind_forward(d, threads);
    } else if (d.stride == 1) {
      // Also a forward convolution, with the channels swapped and the taps mirrored, and oneDNN's
      // forward kernels are the faster ones.
      ConvolutionDescriptor mirrored = d;
      std::swap(mirrored.channels_in, mirrored.channels_out);
      bind_forward(mirrored, threads);
      std::swap(weights.input, weights.output);
      std::reverse(weights.tap.begin(), weights.tap.end());
    } else {
      const auto hint = forward_primitive(operands(d, d.dtype));
      const auto data =
          backward_data_primitive(operands(d, d.dtype), hint, LeanImplementation{d.dtype});
      bind(dnnl::convolution_backward_data(data), data, {DNNL_ARG_DIFF_DST, data.diff_dst_desc()},
           {DNNL_ARG_WEIGHTS, data.weights_desc()}, {DNNL_ARG_DIFF_SRC, data.diff_src_desc()}, d,
           threads);
    }
  }
  void run(int thread, const Band&, const void* in, const void* packed, void* out,
           void* scratch) const override {
    primitive_->run(thread, {in, packed, out, scratch});
  }

 private:
  void bind_forward(const ConvolutionDescriptor& d, int threads) {
    const auto forward = forward_primitive(operands(d, d.dtype), LeanImplementation{d.dtype});
    bind(dnnl::convolution_forward(forward), forward, {DNNL_ARG_SRC, forward.src_desc()},
         {DNNL_ARG_WEIGHTS, forward.weights_desc()}, {DNNL_ARG_DST, forward.dst_desc()}, d,
         threads);
  }

  template <class PrimitiveDesc>
  void bind(const dnnl::primitive& primitive, const PrimitiveDesc& desc,
            BoundPrimitive::Argument in, BoundPrimitive::Argument packed,
            BoundPrimitive::Argument out, const ConvolutionDescriptor& d, int threads) {
    weights = weight_layout(packed.desc, d, d.dtype);
    scratch_bytes = scratch_of(desc);
    primitive_.emplace(primitive,
                       std::vector<BoundPrimitive::Argument>{
                           in, packed, out, {DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc()}},
                       threads);
  }
  std::optional<BoundPrimitive> primitive_;
};

class WidenedSlice final : public SliceKernel {
 public:
  WidenedSlice(const ConvolutionDescriptor& d, SlicePass pass, int threads) : dtype_(d.dtype) {
    ConvolutionDescriptor wide = d;
    wide.dtype = Dtype::f32;
    wide.images = widened_images(d, d.images);
    chunks_ = d.images / wide.images;
    kernel_ = std::make_unique<OnednnSlice>(wide, pass, threads);
    const std::int64_t x = wide.images * d.height * d.width * d.channels_in;
    const std::int64_t y = wide.images * d.out_height() * d.out_width() * d.channels_out;
    in_ = pass == SlicePass::forward ? x : y;
    out_ = pass == SlicePass::forward ? y : x;
    weights = kernel_->weights;
    scratch_bytes = kernel_->scratch_bytes + aligned(in_ * 4) + aligned(out_ * 4);
  }
  void run(int thread, const Band&, const void* in, const void* packed, void* out,
           void* scratch) const override {
    auto* wide_in = static_cast<float*>(scratch);
    float* wide_out = wide_in + aligned(in_ * 4) / 4;
    const auto element = static_cast<std::int64_t>(size_of(dtype_));
    for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
      widen(static_cast<const char*>(in) + chunk * in_ * element, dtype_, wide_in, in_);
      kernel_->run(thread, {}, wide_in, packed, wide_out, wide_out + aligned(out_ * 4) / 4);
      narrow(wide_out, dtype_, static_cast<char*>(out) + chunk * out_ * element, out_);
    }
  }

 private:
  Dtype dtype_;
  std::int64_t chunks_;
  std::int64_t in_, out_;  // elements of a chunk
  std::unique_ptr<SliceKernel> kernel_;
};

}  // namespace

std::unique_ptr<SliceKernel> make_onednn_slice(const ConvolutionDescriptor& slice, SlicePass pass,
                                               int threads) {
  if (!onednn_knows(slice.dtype)) return nullptr;
  return unless_unimplemented(slice.dtype,
                              [&] { return std::make_unique<OnednnSlice>(slice, pass, threads); });
}

std::unique_ptr<SliceKernel> make_widened_slice(const ConvolutionDescriptor& slice, SlicePass pass,
                                                int threads) {
  return std::make_unique<WidenedSlice>(slice, pass, threads);
}

}  // namespace memfloor::cpu

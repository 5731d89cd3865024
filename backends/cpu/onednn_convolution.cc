// Convolution kernels on oneDNN: single-threaded primitives, scratch from the caller.
#include <algorithm>
#include <optional>

#include "backends/cpu/convert.h"
#include "backends/cpu/convolution_kernels.h"
#include "backends/cpu/onednn.h"
#include "backends/cpu/slices.h"
#include "core/ledger.h"

namespace memfloor::cpu {
namespace {

using dnnl::memory;

// A primitive with, for every thread, the memory objects it runs on.
class BoundPrimitive {
 public:
  struct Argument {
    int index;
    memory::desc desc;
  };

  BoundPrimitive(dnnl::primitive primitive, std::vector<Argument> arguments, int threads)
      : primitive_(std::move(primitive)), arguments_(std::move(arguments)) {
    for (int thread = 0; thread < threads; ++thread) {
      std::unordered_map<int, memory> bound;
      for (const Argument& a : arguments_)
        bound.emplace(a.index, memory(a.desc, onednn_engine(), DNNL_MEMORY_NONE));
      bound_.push_back(std::move(bound));
    }
  }

  // Pointers in the order of the arguments.
  void run(int thread, std::initializer_list<const void*> pointers) const {
    auto pointer = pointers.begin();
    for (const Argument& a : arguments_)
      bound_[thread].at(a.index).set_data_handle(const_cast<void*>(*pointer++));
    primitive_.execute(onednn_stream(), bound_[thread]);
  }

 private:
  dnnl::primitive primitive_;
  std::vector<Argument> arguments_;
  mutable std::vector<std::unordered_map<int, memory>> bound_;  // one a thread
};

// oneDNN's GEMM-based fallback has fat scratch and allocates behind our back; its reference kernel
// is slow. Moves to the first implementation that is neither, if there is one. For FP16 operands
// there has to be one: widening to FP32 is better than the others.
template <class PrimitiveDesc>
PrimitiveDesc lean_implementation(PrimitiveDesc desc, Dtype operands) {
  PrimitiveDesc candidate = desc;
  do {
    const std::string name = candidate.impl_info_str();
    if (name.find("gemm") == std::string::npos && name.find("ref") == std::string::npos)
      return candidate;
  } while (candidate.next_impl());
  if (operands == Dtype::f16) throw dnnl::error(dnnl_unimplemented, "no native FP16 kernel");
  return desc;
}

OnednnConvolution operands(const ConvolutionDescriptor& d, Dtype weights) {
  using tag = memory::format_tag;
  const memory::dim pad = d.kernel / 2;
  const auto high = [&](std::int64_t in, std::int64_t out) {
    return (out - 1) * d.stride + d.kernel - in - pad;
  };
  const auto type = onednn_type(d.dtype);
  return {memory::desc({d.images, d.channels_in, d.height, d.width}, type, tag::nhwc),
          memory::desc({d.channels_out, d.channels_in, d.kernel, d.kernel}, onednn_type(weights),
                       tag::any),
          memory::desc({d.images, d.channels_out, d.out_height(), d.out_width()}, type, tag::nhwc),
          {d.stride, d.stride},
          {pad, pad},
          {high(d.height, d.out_height()), high(d.width, d.out_width())}};
}

WeightLayout weight_layout(const memory::desc& weights, const ConvolutionDescriptor& d,
                           Dtype dtype) {
  return layout_of(weights, d.channels_out, d.channels_in, d.kernel, dtype);
}

template <class PrimitiveDesc>
std::int64_t scratch_of(const PrimitiveDesc& desc) {
  return aligned(static_cast<std::int64_t>(desc.scratchpad_desc().get_size()));
}

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
          lean_implementation(backward_data_primitive(operands(d, d.dtype), hint), d.dtype);
      bind(dnnl::convolution_backward_data(data), data, {DNNL_ARG_DIFF_DST, data.diff_dst_desc()},
           {DNNL_ARG_WEIGHTS, data.weights_desc()}, {DNNL_ARG_DIFF_SRC, data.diff_src_desc()}, d,
           threads);
    }
  }
  void run(int thread, const void* in, const void* packed, void* out,
           void* scratch) const override {
    primitive_->run(thread, {in, packed, out, scratch});
  }

 private:
  void bind_forward(const ConvolutionDescriptor& d, int threads) {
    const auto forward = lean_implementation(forward_primitive(operands(d, d.dtype)), d.dtype);
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

// Images whose input and output, widened, a thread holds at a time: what a second-level cache
// takes, whatever the batch; at least one.
std::int64_t widened_images(const ConvolutionDescriptor& d, std::int64_t images) {
  constexpr std::int64_t kBytes = 256 << 10, kMost = 8;
  const std::int64_t image_bytes =
      4 * (d.height * d.width * d.channels_in + d.out_height() * d.out_width() * d.channels_out);
  return largest_divisor(images, std::clamp<std::int64_t>(kBytes / image_bytes, 1, kMost));
}

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
  void run(int thread, const void* in, const void* packed, void* out,
           void* scratch) const override {
    auto* wide_in = static_cast<float*>(scratch);
    float* wide_out = wide_in + aligned(in_ * 4) / 4;
    const auto element = static_cast<std::int64_t>(size_of(dtype_));
    for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
      widen(static_cast<const char*>(in) + chunk * in_ * element, dtype_, wide_in, in_);
      kernel_->run(thread, wide_in, packed, wide_out, wide_out + aligned(out_ * 4) / 4);
      narrow(wide_out, dtype_, static_cast<char*>(out) + chunk * out_ * element, out_);
    }
  }

 private:
  Dtype dtype_;
  std::int64_t chunks_;
  std::int64_t in_, out_;  // elements of a chunk
  std::unique_ptr<SliceKernel> kernel_;
};

// The batch is cut into a fixed number of groups of images, each with its own sum, added in order.
// Within a group, `chunk` images go to a primitive at a time, widened where they are stored in 16
// bits and oneDNN has no kernel for those.
class OnednnWeightGradient final : public WeightGradientKernel {
 public:
  OnednnWeightGradient(const ConvolutionDescriptor& d, bool widened, ThreadPool& pool)
      : d_(d), widened_(widened), pool_(pool) {
    // Even numbers of groups first: they balance over two threads and more.
    for (const std::int64_t groups : {8, 4, 6, 2, 7, 5, 3, 1})
      if (d.images % groups == 0) {
        groups_ = groups;
        break;
      }
    const std::int64_t group_images = d.images / groups_;
    chunk_ = widened ? widened_images(d, group_images) : group_images;
    x_image_ = d.height * d.width * d.channels_in;
    y_image_ = d.out_height() * d.out_width() * d.channels_out;

    ConvolutionDescriptor part = d;
    part.images = chunk_;
    if (widened) part.dtype = Dtype::f32;
    const auto hint = forward_primitive(operands(part, part.dtype));
    const auto desc = lean_implementation(
        backward_weights_primitive(operands(part, Dtype::f32), hint), part.dtype);
    primitive_.emplace(
        dnnl::convolution_backward_weights(desc),
        std::vector<BoundPrimitive::Argument>{{DNNL_ARG_SRC, desc.src_desc()},
                                              {DNNL_ARG_DIFF_DST, desc.diff_dst_desc()},
                                              {DNNL_ARG_DIFF_WEIGHTS, desc.diff_weights_desc()},
                                              {DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc()}},
        pool.threads());
    gradient = weight_layout(desc.diff_weights_desc(), d, Dtype::f32);
    sum_bytes_ = aligned(gradient.elements * 4);
    thread_bytes_ = scratch_of(desc);
    if (widened)
      thread_bytes_ += aligned(chunk_ * x_image_ * 4) + aligned(chunk_ * y_image_ * 4) + sum_bytes_;
    scratch_bytes = pool.threads() * thread_bytes_ + (groups_ - 1) * sum_bytes_;
  }

  void run(const void* x, const void* dy, float* dw, void* scratch) const override {
    char* sums = static_cast<char*>(scratch) + pool_.threads() * thread_bytes_;
    const auto sum_of = [&](std::int64_t g) {
      return g == 0 ? dw : reinterpret_cast<float*>(sums + (g - 1) * sum_bytes_);
    };
    pool_.parallel_for(groups_, [&](std::int64_t g, int thread) {
      char* mine = static_cast<char*>(scratch) + thread * thread_bytes_;
      const std::int64_t images = d_.images / groups_;
      for (std::int64_t done = 0; done < images; done += chunk_)
        run_chunk(x, dy, g * images + done, done > 0, sum_of(g), thread, mine);
    });
    constexpr std::int64_t kPiece = 16384;
    pool_.parallel_for(ceil_div(gradient.elements, kPiece), [&](std::int64_t piece, int) {
      const std::int64_t begin = piece * kPiece,
                         count = std::min(kPiece, gradient.elements - begin);
      for (std::int64_t g = 1; g < groups_; ++g)
        add_same(sum_of(g) + begin, Dtype::f32, dw + begin, count);
    });
  }

 private:
  void run_chunk(const void* x, const void* dy, std::int64_t image, bool accumulate, float* sum,
                 int thread, char* scratch) const {
    const auto element = static_cast<std::int64_t>(size_of(d_.dtype));
    const void* chunk_x = static_cast<const char*>(x) + image * x_image_ * element;
    const void* chunk_dy = static_cast<const char*>(dy) + image * y_image_ * element;
    if (!widened_) return primitive_->run(thread, {chunk_x, chunk_dy, sum, scratch});
    auto* wide_x = reinterpret_cast<float*>(scratch);
    float* wide_dy = wide_x + aligned(chunk_ * x_image_ * 4) / 4;
    float* chunk_sum = wide_dy + aligned(chunk_ * y_image_ * 4) / 4;
    widen(chunk_x, d_.dtype, wide_x, chunk_ * x_image_);
    widen(chunk_dy, d_.dtype, wide_dy, chunk_ * y_image_);
    primitive_->run(thread,
                    {wide_x, wide_dy, accumulate ? chunk_sum : sum, chunk_sum + sum_bytes_ / 4});
    if (accumulate) add_same(chunk_sum, Dtype::f32, sum, gradient.elements);
  }

  const ConvolutionDescriptor d_;
  const bool widened_;
  ThreadPool& pool_;
  std::int64_t groups_ = 1, chunk_ = 1;
  std::int64_t x_image_ = 0, y_image_ = 0;  // elements
  std::int64_t sum_bytes_ = 0, thread_bytes_ = 0;
  std::optional<BoundPrimitive> primitive_;
};

// Runs `make`; null where oneDNN has no kernel for 16-bit operands on this CPU.
template <class Make>
auto unless_unimplemented(Dtype dtype, Make&& make) -> decltype(make()) {
  try {
    return make();
  } catch (const dnnl::error&) {
    if (dtype == Dtype::f32) throw;
    return nullptr;
  }
}

// FP16 training came with 3.2; older versions are not asked for it.
bool onednn_knows(Dtype dtype) {
  const dnnl_version_t* version = dnnl_version();
  return dtype != Dtype::f16 || version->major > 3 || (version->major == 3 && version->minor >= 2);
}

}  // namespace

std::unique_ptr<SliceKernel> make_onednn_slice(const ConvolutionDescriptor& slice, SlicePass pass,
                                               int threads) {
  if (!onednn_knows(slice.dtype)) return nullptr;
  return unless_unimplemented(slice.dtype,
                              [&] { return std::make_unique<OnednnSlice>(slice, pass, threads); });
}

std::unique_ptr<WeightGradientKernel> make_onednn_weight_gradient(
    const ConvolutionDescriptor& whole, ThreadPool& pool) {
  if (!onednn_knows(whole.dtype)) return nullptr;
  // oneDNN 2.6's 16-bit kernel reads scratch that it has not written where an image is one pixel
  // wide and the stride is 2.
  if (whole.dtype != Dtype::f32 && whole.width == 1 && whole.stride == 2) return nullptr;
  return unless_unimplemented(
      whole.dtype, [&] { return std::make_unique<OnednnWeightGradient>(whole, false, pool); });
}

std::unique_ptr<SliceKernel> make_widened_slice(const ConvolutionDescriptor& slice, SlicePass pass,
                                                int threads) {
  return std::make_unique<WidenedSlice>(slice, pass, threads);
}

std::unique_ptr<WeightGradientKernel> make_widened_weight_gradient(
    const ConvolutionDescriptor& whole, ThreadPool& pool) {
  return std::make_unique<OnednnWeightGradient>(whole, true, pool);
}

}  // namespace memfloor::cpu

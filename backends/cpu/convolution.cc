// Convolution on oneDNN: single-threaded primitives over slices of images.
//
// Forward and backward-data run one primitive per slice of a few images. The weight gradient is
// summed over a fixed number of image groups, each with its own partial sum, added in order. Where
// oneDNN has no kernel for 16-bit operands on this CPU, slices are widened to f32 in scratch.
#include <algorithm>
#include <optional>

#include "backends/cpu/channel_statistics.h"
#include "backends/cpu/convert.h"
#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/onednn.h"
#include "backends/cpu/slices.h"
#include "core/ledger.h"

namespace memfloor::cpu {
namespace {

using dnnl::memory;

// A primitive with, for every thread, the memory objects it runs on.
template <class Primitive>
class Bound {
 public:
  struct Argument {
    int index;
    memory::desc desc;
  };

  Bound(const typename Primitive::primitive_desc& desc, std::vector<Argument> arguments,
        int threads)
      : primitive_(desc), arguments_(std::move(arguments)) {
    arguments_.push_back({DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc()});
    for (int thread = 0; thread < threads; ++thread) {
      std::unordered_map<int, memory> bound;
      for (const Argument& a : arguments_)
        bound.emplace(a.index, memory(a.desc, onednn_engine(), DNNL_MEMORY_NONE));
      bound_.push_back(std::move(bound));
    }
  }

  // Pointers in the order of the arguments, scratch last.
  void run(int thread, std::initializer_list<const void*> pointers) const {
    auto pointer = pointers.begin();
    for (const Argument& a : arguments_)
      bound_[thread].at(a.index).set_data_handle(const_cast<void*>(*pointer++));
    primitive_.execute(onednn_stream(), bound_[thread]);
  }

 private:
  Primitive primitive_;
  std::vector<Argument> arguments_;
  mutable std::vector<std::unordered_map<int, memory>> bound_;
};

// oneDNN's GEMM-based fallback has fat scratch and allocates behind our back; its reference kernel
// is slow. Moves to the first implementation that is neither, if there is one.
template <class PrimitiveDesc>
PrimitiveDesc lean_implementation(PrimitiveDesc desc) {
  PrimitiveDesc candidate = desc;
  do {
    const std::string name = candidate.impl_info_str();
    if (name.find("gemm") == std::string::npos && name.find("ref") == std::string::npos)
      return candidate;
  } while (candidate.next_impl());
  return desc;
}

constexpr std::int64_t kSlicePixels =
    2048;  // output pixels of a slice: amortises a call, stays in L2
constexpr std::int64_t kSliceImages = 8;

class CpuConvolution final : public Convolution {
 public:
  CpuConvolution(const ConvolutionDescriptor& d, ThreadPool& pool)
      : d_(d), pool_(pool), pixels_out_(d.out_height() * d.out_width()) {
    x_image_ = d.height * d.width * d.channels_in;
    y_image_ = pixels_out_ * d.channels_out;
    slice_ = largest_divisor(d.images,
                             std::clamp<std::int64_t>(kSlicePixels / pixels_out_, 1, kSliceImages));
    // Even numbers of groups first: they balance over two threads and more.
    for (std::int64_t groups : {8, 4, 6, 2, 7, 5, 3, 1})
      if (d.images % groups == 0) {
        groups_ = groups;
        break;
      }
    compute_ = d.dtype;
    if (!try_native()) {
      compute_ = Dtype::f32;
      chunk_ = largest_divisor(d.images / groups_, slice_);
      create_primitives();
    }
    plan();
  }

  void forward(const void* x, const void* weights, const void* residual, void* y, float* statistics,
               void* scratch) const override {
    pool_.parallel_for(d_.images / slice_, [&](std::int64_t s, int thread) {
      char* mine = static_cast<char*>(scratch) + thread * forward_thread_bytes_;
      const void* source = at(x, s * slice_ * x_image_);
      void* destination = at(y, s * slice_ * y_image_);
      if (widened()) {
        float* wide_x = take<float>(mine, slice_ * x_image_);
        float* wide_y = take<float>(mine, slice_ * y_image_);
        widen(source, d_.dtype, wide_x, slice_ * x_image_);
        forward_->run(thread, {wide_x, weights, wide_y, mine});
        narrow(wide_y, d_.dtype, destination, slice_ * y_image_);
      } else {
        forward_->run(thread, {source, weights, destination, mine});
      }
      if (!residual && !statistics) return;
      with_dtype(d_.dtype, [&](auto element) {
        using T = decltype(element);
        for (std::int64_t image = s * slice_; image < (s + 1) * slice_; ++image) {
          channel_statistics(
              static_cast<T*>(y) + image * y_image_,
              residual ? static_cast<const T*>(residual) + image * y_image_ : nullptr, pixels_out_,
              d_.channels_out, statistics ? statistics + image * 2 * d_.channels_out : nullptr);
        }
      });
    });
  }

  void backward_data(const void* dy, const void* weights, void* dx, bool accumulate,
                     void* scratch) const override {
    pool_.parallel_for(d_.images / slice_, [&](std::int64_t s, int thread) {
      char* mine = static_cast<char*>(scratch) + thread * backward_data_thread_bytes_;
      const void* source = at(dy, s * slice_ * y_image_);
      void* destination = at(dx, s * slice_ * x_image_);
      const std::int64_t elements = slice_ * x_image_;
      if (widened()) {
        float* wide_x = take<float>(mine, elements);
        float* wide_y = take<float>(mine, slice_ * y_image_);
        widen(source, d_.dtype, wide_y, slice_ * y_image_);
        backward_data_->run(thread, {wide_y, weights, wide_x, mine});
        if (accumulate)
          add_into(wide_x, d_.dtype, destination, elements);
        else
          narrow(wide_x, d_.dtype, destination, elements);
      } else if (accumulate) {
        char* sum = take<char>(mine, elements * static_cast<std::int64_t>(size_of(d_.dtype)));
        backward_data_->run(thread, {source, weights, sum, mine});
        add_same(sum, d_.dtype, destination, elements);
      } else {
        mine += aligned(elements * static_cast<std::int64_t>(size_of(d_.dtype)));
        backward_data_->run(thread, {source, weights, destination, mine});
      }
    });
  }

  void backward_weights(const void* x, const void* dy, float* dw, void* scratch) const override {
    const std::int64_t elements = plan_.gradient.elements;
    char* shared = static_cast<char*>(scratch);
    float* partials = take<float>(shared, (groups_ - 1) * elements);
    const std::int64_t group_images = d_.images / groups_;
    pool_.parallel_for(groups_, [&](std::int64_t g, int thread) {
      char* mine = shared + thread * backward_weights_thread_bytes_;
      float* sum = g == 0 ? dw : partials + (g - 1) * elements;
      if (!widened()) {
        return backward_weights_->run(thread, {at(x, g * group_images * x_image_),
                                               at(dy, g * group_images * y_image_), sum, mine});
      }
      float* wide_x = take<float>(mine, chunk_ * x_image_);
      float* wide_y = take<float>(mine, chunk_ * y_image_);
      float* chunk_sum = take<float>(mine, elements);
      for (std::int64_t c = 0; c < group_images; c += chunk_) {
        const std::int64_t first = g * group_images + c;
        widen(at(x, first * x_image_), d_.dtype, wide_x, chunk_ * x_image_);
        widen(at(dy, first * y_image_), d_.dtype, wide_y, chunk_ * y_image_);
        backward_weights_->run(thread, {wide_x, wide_y, c == 0 ? sum : chunk_sum, mine});
        if (c > 0) add_same(chunk_sum, Dtype::f32, sum, elements);
      }
    });
    constexpr std::int64_t kPiece = 16384;
    pool_.parallel_for(ceil_div(elements, kPiece), [&](std::int64_t piece, int) {
      const std::int64_t begin = piece * kPiece, end = std::min(elements, begin + kPiece);
      for (std::int64_t g = 1; g < groups_; ++g)
        add_same(partials + (g - 1) * elements + begin, Dtype::f32, dw + begin, end - begin);
    });
  }

 private:
  bool widened() const { return compute_ != d_.dtype; }

  const void* at(const void* base, std::int64_t element) const {
    return static_cast<const char*>(base) + element * static_cast<std::int64_t>(size_of(d_.dtype));
  }
  void* at(void* base, std::int64_t element) const {
    return static_cast<char*>(base) + element * static_cast<std::int64_t>(size_of(d_.dtype));
  }

  template <class T>
  static T* take(char*& from, std::int64_t elements) {
    T* taken = reinterpret_cast<T*>(from);
    from += aligned(elements * static_cast<std::int64_t>(sizeof(T)));
    return taken;
  }

  bool try_native() {
    chunk_ = d_.images / groups_;
    try {
      create_primitives();
    } catch (const dnnl::error&) {
      if (compute_ == Dtype::f32) throw;
      return false;
    }
    return true;
  }

  OnednnConvolution operands(std::int64_t images, Dtype weights_dtype) const {
    using tag = memory::format_tag;
    const memory::dim pad = d_.kernel / 2;
    const auto high = [&](std::int64_t in, std::int64_t out) {
      return (out - 1) * d_.stride + d_.kernel - in - pad;
    };
    const auto type = onednn_type(compute_);
    return {
        memory::desc({images, d_.channels_in, d_.height, d_.width}, type, tag::nhwc),
        memory::desc({d_.channels_out, d_.channels_in, d_.kernel, d_.kernel},
                     onednn_type(weights_dtype), tag::any),
        memory::desc({images, d_.channels_out, d_.out_height(), d_.out_width()}, type, tag::nhwc),
        {d_.stride, d_.stride},
        {pad, pad},
        {high(d_.height, d_.out_height()), high(d_.width, d_.out_width())}};
  }

  void create_primitives() {
    const int threads = pool_.threads();
    const auto layout = [&](const memory::desc& weights, Dtype dtype) {
      return layout_of(weights, d_.channels_out, d_.channels_in, d_.kernel, dtype);
    };
    const auto scratch = [](const auto& desc) {
      return aligned(static_cast<std::int64_t>(desc.scratchpad_desc().get_size()));
    };
    const auto forward = lean_implementation(forward_primitive(operands(slice_, compute_)));
    forward_.emplace(forward,
                     std::vector<Bound<dnnl::convolution_forward>::Argument>{
                         {DNNL_ARG_SRC, forward.src_desc()},
                         {DNNL_ARG_WEIGHTS, forward.weights_desc()},
                         {DNNL_ARG_DST, forward.dst_desc()}},
                     threads);
    plan_.forward_weights = layout(forward.weights_desc(), compute_);
    forward_thread_bytes_ = scratch(forward);

    const auto data =
        lean_implementation(backward_data_primitive(operands(slice_, compute_), forward));
    backward_data_.emplace(data,
                           std::vector<Bound<dnnl::convolution_backward_data>::Argument>{
                               {DNNL_ARG_DIFF_DST, data.diff_dst_desc()},
                               {DNNL_ARG_WEIGHTS, data.weights_desc()},
                               {DNNL_ARG_DIFF_SRC, data.diff_src_desc()}},
                           threads);
    plan_.backward_weights = layout(data.weights_desc(), compute_);
    backward_data_thread_bytes_ = scratch(data);

    const OnednnConvolution grouped = operands(chunk_, Dtype::f32);
    const auto weights = lean_implementation(
        backward_weights_primitive(grouped, forward_primitive(operands(chunk_, compute_))));
    backward_weights_.emplace(weights,
                              std::vector<Bound<dnnl::convolution_backward_weights>::Argument>{
                                  {DNNL_ARG_SRC, weights.src_desc()},
                                  {DNNL_ARG_DIFF_DST, weights.diff_dst_desc()},
                                  {DNNL_ARG_DIFF_WEIGHTS, weights.diff_weights_desc()}},
                              threads);
    plan_.gradient = layout(weights.diff_weights_desc(), Dtype::f32);
    backward_weights_thread_bytes_ = scratch(weights);
  }

  void plan() {
    plan_.multiply_adds = d_.images * y_image_ * d_.channels_in * d_.kernel * d_.kernel;
    const auto wide = [](std::int64_t elements) { return aligned(elements * 4); };
    const std::int64_t slice_x = slice_ * x_image_, slice_y = slice_ * y_image_;
    const auto element = static_cast<std::int64_t>(size_of(d_.dtype));
    if (widened()) {
      forward_thread_bytes_ += wide(slice_x) + wide(slice_y);
      backward_data_thread_bytes_ += wide(slice_x) + wide(slice_y);
      backward_weights_thread_bytes_ +=
          wide(chunk_ * x_image_) + wide(chunk_ * y_image_) + wide(plan_.gradient.elements);
    } else {
      backward_data_thread_bytes_ += aligned(slice_x * element);  // for accumulation
    }
    const int threads = pool_.threads();
    plan_.forward_scratch = threads * forward_thread_bytes_;
    plan_.backward_data_scratch = threads * backward_data_thread_bytes_;
    plan_.backward_weights_scratch =
        threads * backward_weights_thread_bytes_ + wide((groups_ - 1) * plan_.gradient.elements);
  }

  const ConvolutionDescriptor d_;
  ThreadPool& pool_;
  std::int64_t pixels_out_, x_image_ = 0, y_image_ = 0;  // elements
  std::int64_t slice_ = 1;   // images a slice, forward and backward_data
  std::int64_t groups_ = 1;  // of images, for the weight gradient
  std::int64_t chunk_ = 1;   // images a call of the weight gradient
  Dtype compute_ = Dtype::f32;
  std::optional<Bound<dnnl::convolution_forward>> forward_;
  std::optional<Bound<dnnl::convolution_backward_data>> backward_data_;
  std::optional<Bound<dnnl::convolution_backward_weights>> backward_weights_;
  std::int64_t forward_thread_bytes_ = 0, backward_data_thread_bytes_ = 0,
               backward_weights_thread_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Convolution> make_convolution(const ConvolutionDescriptor& descriptor,
                                              ThreadPool& pool) {
  return std::make_unique<CpuConvolution>(descriptor, pool);
}

}  // namespace memfloor::cpu

// Weight gradients on oneDNN: single-threaded primitives over fixed slices of the work, scratch
// from the caller. Operands stored in 16 bits for which oneDNN has no kernel are widened, a few
// images at a time.
#include <algorithm>
#include <optional>

#include "backends/cpu/convert.h"
#include "backends/cpu/convolution_kernels.h"
#include "backends/cpu/onednn_primitive.h"

namespace memfloor::cpu {
namespace {

// oneDNN's weight gradient of a part of the work, f32 sums, overwritten.
class PartPrimitive {
 public:
  PartPrimitive(const ConvolutionDescriptor& part, int threads) {
    const auto hint = forward_primitive(operands(part, part.dtype));
    const auto desc = backward_weights_primitive(operands(part, Dtype::f32), hint,
                                                 LeanImplementation{part.dtype});
    primitive_.emplace(
        dnnl::convolution_backward_weights(desc),
        std::vector<BoundPrimitive::Argument>{{DNNL_ARG_SRC, desc.src_desc()},
                                              {DNNL_ARG_DIFF_DST, desc.diff_dst_desc()},
                                              {DNNL_ARG_DIFF_WEIGHTS, desc.diff_weights_desc()},
                                              {DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc()}},
        threads);
    layout_ = weight_layout(desc.diff_weights_desc(), part, Dtype::f32);
    scratch_bytes_ = scratch_of(desc);
  }

  // x, dy, dw, scratch
  void run(int thread, std::initializer_list<const void*> pointers) const {
    primitive_->run(thread, pointers);
  }
  const WeightLayout& layout() const { return layout_; }
  std::int64_t scratch_bytes() const { return scratch_bytes_; }

 private:
  std::optional<BoundPrimitive> primitive_;
  WeightLayout layout_;
  std::int64_t scratch_bytes_ = 0;
};

// The batch is cut into a fixed number of groups of images, each with its own sum, added in order.
// Within a group, `chunk` images go to a primitive at a time, widened where they are stored in 16
// bits and oneDNN has no kernel for those.
class GroupedWeightGradient final : public WeightGradientKernel {
 public:
  GroupedWeightGradient(const ConvolutionDescriptor& d, bool widened, ThreadPool& pool)
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
    part_.emplace(part, pool.threads());
    gradient = part_->layout();
    sum_bytes_ = aligned(gradient.elements * 4);
    thread_bytes_ = part_->scratch_bytes();
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
    if (!widened_) return part_->run(thread, {chunk_x, chunk_dy, sum, scratch});
    auto* wide_x = reinterpret_cast<float*>(scratch);
    float* wide_dy = wide_x + aligned(chunk_ * x_image_ * 4) / 4;
    float* chunk_sum = wide_dy + aligned(chunk_ * y_image_ * 4) / 4;
    widen(chunk_x, d_.dtype, wide_x, chunk_ * x_image_);
    widen(chunk_dy, d_.dtype, wide_dy, chunk_ * y_image_);
    part_->run(thread, {wide_x, wide_dy, accumulate ? chunk_sum : sum, chunk_sum + sum_bytes_ / 4});
    if (accumulate) add_same(chunk_sum, Dtype::f32, sum, gradient.elements);
  }

  const ConvolutionDescriptor d_;
  const bool widened_;
  ThreadPool& pool_;
  std::int64_t groups_ = 1, chunk_ = 1;
  std::int64_t x_image_ = 0, y_image_ = 0;  // elements
  std::int64_t sum_bytes_ = 0, thread_bytes_ = 0;
  std::optional<PartPrimitive> part_;
};

// Large weights, for which a sum a group would cost more memory than all else: tiles of output
// channels, each summed over the whole batch by one thread. A few images at a time, a tile's
// channels of dy are gathered into scratch.
class TiledWeightGradient final : public WeightGradientKernel {
 public:
  TiledWeightGradient(const ConvolutionDescriptor& d, bool widened, ThreadPool& pool)
      : d_(d), widened_(widened), pool_(pool), tile_(tile_outputs(d)) {
    ConvolutionDescriptor part = d;
    part.channels_out = tile_;
    if (widened) part.dtype = Dtype::f32;
    element_ = static_cast<std::int64_t>(size_of(part.dtype));
    x_image_ = d.height * d.width * d.channels_in;
    dy_image_ = d.out_height() * d.out_width() * tile_;
    const std::int64_t image_bytes = element_ * (dy_image_ + (widened ? x_image_ : 0));
    chunk_ = largest_divisor(d.images, std::max<std::int64_t>(1, kChunkBytes / image_bytes));
    part.images = chunk_;

    part_.emplace(part, pool.threads());

    const WeightLayout& one = part_->layout();
    tile_elements_ = one.elements;
    gradient = one;
    gradient.output.clear();
    for (std::int64_t o = 0; o < d.channels_out; ++o)
      gradient.output.push_back(o / tile_ * tile_elements_ +
                                one.output[static_cast<std::size_t>(o % tile_)]);
    gradient.elements = d.channels_out / tile_ * tile_elements_;

    wide_x_bytes_ = widened ? aligned(chunk_ * x_image_ * element_) : 0;
    dy_bytes_ = aligned(chunk_ * dy_image_ * element_);
    sum_bytes_ = chunk_ < d.images ? aligned(tile_elements_ * 4) : 0;
    thread_bytes_ = wide_x_bytes_ + dy_bytes_ + sum_bytes_ + part_->scratch_bytes();
    scratch_bytes = pool.threads() * thread_bytes_;
  }

  static bool serves(const ConvolutionDescriptor& d) {
    constexpr std::int64_t kLargeBytes = 64 << 10;
    return 4 * d.channels_out * d.channels_in * d.kernel * d.kernel > kLargeBytes &&
           tile_outputs(d) < d.channels_out;
  }

  void run(const void* x, const void* dy, float* dw, void* scratch) const override {
    pool_.parallel_for(d_.channels_out / tile_, [&](std::int64_t tile, int thread) {
      char* wide_x = static_cast<char*>(scratch) + thread * thread_bytes_;
      char* tile_dy = wide_x + wide_x_bytes_;
      char* sum = tile_dy + dy_bytes_;
      char* library = sum + sum_bytes_;
      float* to = dw + tile * tile_elements_;
      for (std::int64_t image = 0; image < d_.images; image += chunk_) {
        const void* chunk_x = static_cast<const char*>(x) +
                              image * x_image_ * static_cast<std::int64_t>(size_of(d_.dtype));
        if (widened_) {
          widen(chunk_x, d_.dtype, reinterpret_cast<float*>(wide_x), chunk_ * x_image_);
          chunk_x = wide_x;
        }
        gather(dy, image, tile, tile_dy);
        auto* into = image > 0 ? reinterpret_cast<float*>(sum) : to;
        part_->run(thread, {chunk_x, tile_dy, into, library});
        if (image > 0) add_same(sum, Dtype::f32, to, tile_elements_);
      }
    });
  }

 private:
  static constexpr std::int64_t kChunkBytes = 256 << 10;
  static std::int64_t tile_outputs(const ConvolutionDescriptor& d) {
    constexpr std::int64_t kMost = 32;
    return largest_divisor(d.channels_out, kMost);
  }

  // The tile's channels of `chunk_` images of dy.
  void gather(const void* dy, std::int64_t image, std::int64_t tile, void* to) const {
    const std::int64_t pixels = d_.out_height() * d_.out_width();
    with_dtype(d_.dtype, [&](auto element) {
      using T = decltype(element);
      const T* from = static_cast<const T*>(dy) + image * pixels * d_.channels_out + tile * tile_;
      for (std::int64_t p = 0; p < chunk_ * pixels; ++p, from += d_.channels_out)
        if (widened_)
          widen(from, d_.dtype, static_cast<float*>(to) + p * tile_, tile_);
        else
          std::copy(from, from + tile_, static_cast<T*>(to) + p * tile_);
    });
  }

  const ConvolutionDescriptor d_;
  const bool widened_;
  ThreadPool& pool_;
  const std::int64_t tile_;                  // output channels
  std::int64_t chunk_ = 1;                   // images
  std::int64_t element_ = 4;                 // bytes, as the primitive takes them
  std::int64_t x_image_ = 0, dy_image_ = 0;  // elements; of dy a tile's
  std::int64_t tile_elements_ = 0;           // of dw
  std::int64_t wide_x_bytes_ = 0, dy_bytes_ = 0, sum_bytes_ = 0, thread_bytes_ = 0;
  std::optional<PartPrimitive> part_;
};

std::unique_ptr<WeightGradientKernel> make(const ConvolutionDescriptor& d, bool widened,
                                           ThreadPool& pool) {
  if (TiledWeightGradient::serves(d))
    return std::make_unique<TiledWeightGradient>(d, widened, pool);
  return std::make_unique<GroupedWeightGradient>(d, widened, pool);
}

}  // namespace

std::unique_ptr<WeightGradientKernel> make_onednn_weight_gradient(
    const ConvolutionDescriptor& whole, ThreadPool& pool) {
  if (!onednn_knows(whole.dtype)) return nullptr;
  // oneDNN 2.6's 16-bit kernel reads scratch that it has not written where an image is one pixel
  // wide and the stride is 2.
  if (whole.dtype != Dtype::f32 && whole.width == 1 && whole.stride == 2) return nullptr;
  return unless_unimplemented(whole.dtype, [&] { return make(whole, false, pool); });
}

std::unique_ptr<WeightGradientKernel> make_widened_weight_gradient(
    const ConvolutionDescriptor& whole, ThreadPool& pool) {
  return make(whole, true, pool);
}

}  // namespace memfloor::cpu

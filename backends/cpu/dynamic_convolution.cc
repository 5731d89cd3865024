// The dynamic convolution that keeps nothing: a sentence's dropped kernels lie in scratch, between
// zeros, so that four positions are computed together as the product of a small matrix, with those
// kernels on its diagonals, and the rows of x that any of the four meets.
#include "backends/cpu/dynamic_convolution.h"

#include "backends/cpu/convert.h"
#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/dropout.h"
#include "backends/cpu/rows.h"
#include "core/ledger.h"

namespace memfloor::cpu {
namespace {

class DirectConvolution final : public DynamicConvolution {
 public:
  DirectConvolution(const DynamicConvolutionDescriptor& d, ThreadPool& pool) : d_(d), pool_(pool) {}

  std::int64_t saved_elements(const Sequences&) const override { return 0; }
  std::int64_t forward_scratch(const Sequences& sequences) const override {
    return pool_.threads() * thread_bytes(sequences, 1);
  }
  std::int64_t backward_scratch(const Sequences& sequences) const override {
    return pool_.threads() * thread_bytes(sequences, 2);
  }

  void forward(const Sequences& sequences, const Dropout& dropout, const void* x,
               const void* kernels, void*, void* y, void* scratch) const override {
    const DropoutMasks masks(dropout);
    for_sentences(sequences, scratch, 1, [&](auto element, const Sentence& s) {
      using T = decltype(element);
      const T* of_sentence = static_cast<const T*>(kernels) + s.first_row * row_width();
      float* row = s.scratch + d_.heads * head_size(s.length);
      for (std::int64_t t = 0; t < s.length; ++t) {
        masks.factors(s.number, t, 0, row_width(), row);
        multiply_row(row, of_sentence + t * row_width(), row_width());
        spread(row, s, t);
      }
      for (std::int64_t head = 0; head < d_.heads; ++head) {
        const auto in = view(static_cast<const T*>(x), s, head);
        const auto out = view(static_cast<T*>(y), s, head);
        for (std::int64_t t = 0; t < s.length; t += kTile) {
          const std::int64_t count = std::min(kTile, s.length - t);
          // The tile's first row meets kernel elements [first, last), the others lie on diagonals.
          const std::int64_t first = std::max<std::int64_t>(0, d_.left - t);
          const std::int64_t last =
              std::min<std::int64_t>(d_.kernel + count - 1, s.length - t + d_.left);
          multiply(count, width(), last - first,
                   MatrixView<const float>{kernel(s, head, t) + first, row_stride() - 1},
                   MatrixView<const T>{in.at(t + first - d_.left, 0), in.row},
                   MatrixView<T>{out.at(t, 0), out.row});
        }
      }
    });
  }

  void backward(const Sequences& sequences, const Dropout& dropout, const void* x,
                const void* kernels, const void*, const void* dy, void* dx, void* dkernels,
                void* scratch) const override {
    const DropoutMasks masks(dropout);
    for_sentences(sequences, scratch, 2, [&](auto element, const Sentence& s) {
      using T = decltype(element);
      const T* of_sentence = static_cast<const T*>(kernels) + s.first_row * row_width();
      T* gradients = static_cast<T*>(dkernels) + s.first_row * row_width();
      float* factors = s.scratch + d_.heads * head_size(s.length);
      float* row = factors + row_width();
      for (std::int64_t t = 0; t < s.length; ++t) {
        masks.factors(s.number, t, 0, row_width(), factors);
        for (std::int64_t head = 0; head < d_.heads; ++head)
          kernel_gradient(d_, t, s.length, view(static_cast<const T*>(dy), s, head).at(t, 0),
                          view(static_cast<const T*>(x), s, head), row + head * d_.kernel);
        multiply_row(row, factors, row_width());
        narrow(row, d_.dtype, gradients + t * row_width(), row_width());
        multiply_row(factors, of_sentence + t * row_width(), row_width());
        spread(factors, s, t);
      }
      for (std::int64_t head = 0; head < d_.heads; ++head) {
        const auto gradient = view(static_cast<const T*>(dy), s, head);
        const auto out = view(static_cast<T*>(dx), s, head);
        for (std::int64_t source = 0; source < s.length; source += kTile) {
          const std::int64_t count = std::min(kTile, s.length - source);
          // Positions whose kernels meet the tile.
          const std::int64_t middle = source + d_.left;
          const std::int64_t first = std::max<std::int64_t>(0, middle - d_.kernel + 1);
          const std::int64_t last = std::min(s.length, middle + count);
          multiply(
              count, width(), last - first,
              MatrixView<const float>{kernel(s, head, first) + middle - first, 1, row_stride() - 1},
              MatrixView<const T>{gradient.at(first, 0), gradient.row},
              MatrixView<T>{out.at(source, 0), out.row});
        }
      }
    });
  }

 private:
  static constexpr std::int64_t kTile = 4;  // positions computed together

  struct Sentence {
    std::int64_t number, first_row, length;
    float* scratch;  // (heads, head_size); then one or two rows of kernels
  };

  std::int64_t width() const { return d_.channels / d_.heads; }
  std::int64_t row_width() const { return d_.heads * d_.kernel; }
  // A position's kernel and kTile - 1 zeros, which also precede the next position's.
  std::int64_t row_stride() const { return d_.kernel + kTile - 1; }
  std::int64_t head_size(std::int64_t length) const { return length * row_stride(); }
  std::int64_t thread_bytes(const Sequences& sequences, std::int64_t rows) const {
    return aligned((d_.heads * head_size(sequences.longest()) + rows * row_width()) * 4);
  }
  float* kernel(const Sentence& s, std::int64_t head, std::int64_t t) const {
    return s.scratch + head * head_size(s.length) + t * row_stride();
  }

  // Puts a position's dropped kernels into their places.
  void spread(const float* row, const Sentence& s, std::int64_t t) const {
    for (std::int64_t head = 0; head < d_.heads; ++head) {
      float* to = kernel(s, head, t);
      std::copy(row + head * d_.kernel, row + (head + 1) * d_.kernel, to);
      std::fill(to + d_.kernel, to + row_stride(), 0.0f);
    }
  }

  template <class T>
  MatrixView<T> view(T* data, const Sentence& s, std::int64_t head) const {
    return {data + s.first_row * d_.channels + head * width(), d_.channels};
  }

  // body(an element of the stored type, sentence) for all, in parallel.
  template <class Body>
  void for_sentences(const Sequences& sequences, void* scratch, std::int64_t rows,
                     Body&& body) const {
    const std::int64_t bytes = thread_bytes(sequences, rows);
    with_dtype(d_.dtype, [&](auto element) {
      pool_.parallel_for(sequences.count(), [&](std::int64_t i, int thread) {
        body(element, Sentence{i, sequences.first_row[i], sequences.length(i),
                               thread_scratch(scratch, thread, bytes)});
      });
    });
  }

  const DynamicConvolutionDescriptor d_;
  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<DynamicConvolution> make_direct_convolution(const DynamicConvolutionDescriptor& d,
                                                            ThreadPool& pool) {
  return std::make_unique<DirectConvolution>(d, pool);
}

std::unique_ptr<DynamicConvolution> make_dynamic_convolution(const DynamicConvolutionDescriptor& d,
                                                             ThreadPool& pool) {
  MEMFLOOR_CHECK(d.channels % d.heads == 0, d.channels, " channels are not ", d.heads,
                 " equal heads");
  MEMFLOOR_CHECK(d.kernel > 0 && d.left >= 0 && d.left < d.kernel, "a kernel of ", d.kernel,
                 " positions begins ", d.left, " before its own");
  return d.method == DynamicConvolutionMethod::band ? make_band_convolution(d, pool)
                                                    : make_direct_convolution(d, pool);
}

}  // namespace memfloor::cpu

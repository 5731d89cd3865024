// The dynamic convolution as fairseq trains with: every sentence's and head's kernels expanded to a
// band matrix, whose column j belongs to position j - left, and multiplied with the head's
// channels.
#include "backends/cpu/convert.h"
#include "backends/cpu/dropout.h"
#include "backends/cpu/dynamic_convolution.h"
#include "backends/cpu/rows.h"
#include "core/ledger.h"

namespace memfloor::cpu {
namespace {

class BandConvolution final : public DynamicConvolution {
 public:
  BandConvolution(const DynamicConvolutionDescriptor& d, ThreadPool& pool) : d_(d), pool_(pool) {}

  std::int64_t saved_elements(const Sequences& sequences) const override {
    std::int64_t bands = 0;
    for (std::int64_t i = 0; i < sequences.count(); ++i)
      bands += d_.heads * band_size(sequences.length(i));
    return sequences.rows() * d_.channels + bands;
  }
  std::int64_t forward_scratch(const Sequences& sequences) const override {
    return offset_bytes(sequences) + pool_.threads() * thread_bytes(sequences);
  }
  std::int64_t backward_scratch(const Sequences& sequences) const override {
    return forward_scratch(sequences);
  }

  void forward(const Sequences& sequences, const Dropout& dropout, const void* x,
               const void* kernels, void* saved, void* y, void* scratch) const override {
    const DropoutMasks masks(dropout);
    for_sentences(sequences, scratch, [&](auto element, const Sentence& s) {
      using T = decltype(element);
      auto* heads = static_cast<T*>(saved) + s.first_row * d_.channels;  // (heads, length, width)
      auto* bands = static_cast<T*>(saved) + s.bands;  // (heads, length, length + kernel - 1)
      const T* of_sentence = static_cast<const T*>(kernels) + s.first_row * row_width();
      std::fill(bands, bands + d_.heads * band_size(s.length), T(0.0f));
      for (std::int64_t t = 0; t < s.length; ++t) {
        masks.factors(s.number, t, 0, row_width(), s.scratch);
        multiply_row(s.scratch, of_sentence + t * row_width(), row_width());
        for (std::int64_t head = 0; head < d_.heads; ++head) {
          narrow(s.scratch + head * d_.kernel, d_.dtype,
                 bands + head * band_size(s.length) + t * band_row(s.length) + t, d_.kernel);
          const T* from = static_cast<const T*>(x) + (s.first_row + t) * d_.channels;
          std::copy(from + head * width(), from + (head + 1) * width(),
                    heads + (head * s.length + t) * width());
        }
      }
      for (std::int64_t head = 0; head < d_.heads; ++head)
        multiply(s.length, width(), s.length,
                 MatrixView<const float>{band(bands, s, head) + d_.left, band_row(s.length)},
                 MatrixView<const T>{heads + head * s.length * width(), width()},
                 view(static_cast<T*>(y), s, head));
    });
  }

  void backward(const Sequences& sequences, const Dropout& dropout, const void*, const void*,
                const void* saved, const void* dy, void* dx, void* dkernels,
                void* scratch) const override {
    const DropoutMasks masks(dropout);
    for_sentences(sequences, scratch, [&](auto element, const Sentence& s) {
      using T = decltype(element);
      const auto* heads = static_cast<const T*>(saved) + s.first_row * d_.channels;
      const auto* bands = static_cast<const T*>(saved) + s.bands;
      T* gradients = static_cast<T*>(dkernels) + s.first_row * row_width();
      for (std::int64_t head = 0; head < d_.heads; ++head)
        multiply(s.length, width(), s.length,
                 MatrixView<const float>{band(bands, s, head) + d_.left, 1, band_row(s.length)},
                 view(static_cast<const T*>(dy), s, head), view(static_cast<T*>(dx), s, head));
      float *factors = s.scratch, *row = factors + row_width();
      for (std::int64_t t = 0; t < s.length; ++t) {
        masks.factors(s.number, t, 0, row_width(), factors);
        for (std::int64_t head = 0; head < d_.heads; ++head)
          kernel_gradient(d_, t, s.length, view(static_cast<const T*>(dy), s, head).at(t, 0),
                          MatrixView<const T>{heads + head * s.length * width(), width()},
                          row + head * d_.kernel);
        multiply_row(row, factors, row_width());
        narrow(row, d_.dtype, gradients + t * row_width(), row_width());
      }
    });
  }

 private:
  struct Sentence {
    std::int64_t number, first_row, length;
    std::int64_t bands;  // where they begin in what is saved
    float* scratch;      // two rows of kernels; where bands are 16-bit, then one as FP32
  };

  std::int64_t width() const { return d_.channels / d_.heads; }
  std::int64_t row_width() const { return d_.heads * d_.kernel; }
  std::int64_t band_row(std::int64_t length) const { return length + d_.kernel - 1; }
  std::int64_t band_size(std::int64_t length) const { return length * band_row(length); }
  std::int64_t offset_bytes(const Sequences& sequences) const {
    return aligned(sequences.count() * static_cast<std::int64_t>(sizeof(std::int64_t)));
  }
  std::int64_t thread_bytes(const Sequences& sequences) const {
    const std::int64_t wide = d_.dtype == Dtype::f32 ? 0 : band_size(sequences.longest());
    return aligned((2 * row_width() + wide) * 4);
  }

  // A head's band as FP32.
  template <class T>
  const float* band(const T* bands, const Sentence& s, std::int64_t head) const {
    const T* of_head = bands + head * band_size(s.length);
    if constexpr (std::is_same_v<T, float>) {
      return of_head;
    } else {
      float* wide = s.scratch + 2 * row_width();
      widen(of_head, d_.dtype, wide, band_size(s.length));
      return wide;
    }
  }

  template <class T>
  MatrixView<T> view(T* data, const Sentence& s, std::int64_t head) const {
    return {data + s.first_row * d_.channels + head * width(), d_.channels};
  }

  // body(an element of the stored type, sentence) for all, in parallel.
  template <class Body>
  void for_sentences(const Sequences& sequences, void* scratch, Body&& body) const {
    auto* bands = static_cast<std::int64_t*>(scratch);
    for (std::int64_t i = 0, sum = sequences.rows() * d_.channels; i < sequences.count(); ++i) {
      bands[i] = sum;
      sum += d_.heads * band_size(sequences.length(i));
    }
    void* of_threads = static_cast<char*>(scratch) + offset_bytes(sequences);
    const std::int64_t bytes = thread_bytes(sequences);
    with_dtype(d_.dtype, [&](auto element) {
      pool_.parallel_for(sequences.count(), [&](std::int64_t i, int thread) {
        body(element, Sentence{i, sequences.first_row[i], sequences.length(i), bands[i],
                               thread_scratch(of_threads, thread, bytes)});
      });
    });
  }

  const DynamicConvolutionDescriptor d_;
  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<DynamicConvolution> make_band_convolution(const DynamicConvolutionDescriptor& d,
                                                          ThreadPool& pool) {
  return std::make_unique<BandConvolution>(d, pool);
}

}  // namespace memfloor::cpu

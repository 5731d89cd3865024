// Small ops on rows that belong to sentences.
#include "backends/sequence_ops.h"

#include <cmath>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/dropout.h"
#include "backends/cpu/rows.h"
#include "backends/cpu/softmax.h"
#include "core/error.h"

namespace memfloor::cpu {
namespace {

// Calls body(first, columns) for blocks whose masks are drawn together.
template <class Body>
void for_column_blocks(std::int64_t columns, Body&& body) {
  for (std::int64_t first = 0; first < columns; first += kDropoutBlock)
    body(first, std::min(kDropoutBlock, columns - first));
}

class CpuSequenceOps final : public SequenceOps {
 public:
  explicit CpuSequenceOps(ThreadPool& pool) : pool_(pool) {}

  void dropout(const Sequences& sequences, const Dropout& dropout, std::int64_t columns,
               Dtype dtype, const void* x, void* y) override {
    add_scaled_dropout(sequences, dropout, 1, columns, dtype, nullptr, x, y);
  }

  void add_dropout(const Sequences& sequences, const Dropout& dropout, std::int64_t columns,
                   Dtype dtype, const void* residual, const void* x, void* y) override {
    add_scaled_dropout(sequences, dropout, 1, columns, dtype, residual, x, y);
  }

  void add_positions_backward(const Sequences& sequences, const Dropout& dropout, float scale,
                              std::int64_t channels, Dtype dtype, void* dx) override {
    add_scaled_dropout(sequences, dropout, scale, channels, dtype, nullptr, dx, dx);
  }

  // Position by position, so that a sinusoid is computed once for all sentences.
  void add_positions(const Sequences& sequences, const Dropout& dropout, float scale,
                     std::int64_t first_position, std::int64_t channels, Dtype dtype,
                     void* x) override {
    MEMFLOOR_CHECK(channels % 2 == 0, "sinusoids of ", channels, " channels have no halves");
    const DropoutMasks masks(dropout);
    with_dtype(dtype, [&](auto element) {
      using T = decltype(element);
      pool_.parallel_for(sequences.longest(), [&](std::int64_t t, int) {
        for_column_blocks(channels, [&](std::int64_t first, std::int64_t count) {
          float sinusoids[kDropoutBlock], factors[kDropoutBlock];
          for (std::int64_t i = 0; i < count; ++i)
            sinusoids[i] = sinusoid(first_position + t, first + i, channels / 2);
          for (std::int64_t sentence = 0; sentence < sequences.count(); ++sentence) {
            if (sequences.length(sentence) <= t) continue;
            T* at = static_cast<T*>(x) + (sequences.first_row[sentence] + t) * channels + first;
            masks.factors(sentence, t, first, count, factors);
            for_lanes(count, [&](std::int64_t i, auto width) {
              const Lanes v = load(at + i, width) * scale + load(sinusoids + i, width);
              store(at + i, v * load(factors + i, width), width);
            });
          }
        });
      });
    });
  }

  // Sums in the order of positions, as over whole sentences.
  void convolve_position(std::int64_t rows, std::int64_t position,
                         const DynamicConvolutionDescriptor& d, const void* inputs,
                         const void* kernels, void* y) override {
    const std::int64_t width = d.channels / d.heads;
    const std::int64_t oldest = std::max<std::int64_t>(0, position - d.kernel + 1);
    with_dtype(d.dtype, [&](auto element) {
      using T = decltype(element);
      for_row_blocks(pool_, rows, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first * d.heads; i < last * d.heads; ++i) {
          const T* in = static_cast<const T*>(inputs) + i / d.heads * d.kernel * d.channels +
                        i % d.heads * width;
          const T* kernel = static_cast<const T*>(kernels) + i * d.kernel;
          for_lanes(width, [&](std::int64_t c, auto lanes) {
            Lanes sums{};
            for (std::int64_t p = oldest; p <= position; ++p)
              sums += load(in + p % d.kernel * d.channels + c, lanes) *
                      static_cast<float>(kernel[d.kernel - 1 - (position - p)]);
            store(static_cast<T*>(y) + i * width + c, sums, lanes);
          });
        }
      });
    });
  }

  void mask_relu(std::int64_t elements, Dtype dtype, const void* y, void* dy) override {
    constexpr std::int64_t kSlice = 1 << 14;
    with_dtype(dtype, [&](auto element) {
      using T = decltype(element);
      pool_.parallel_for(ceil_div(elements, kSlice), [&](std::int64_t slice, int) {
        const T* out = static_cast<const T*>(y) + slice * kSlice;
        T* gradient = static_cast<T*>(dy) + slice * kSlice;
        for_lanes(std::min(kSlice, elements - slice * kSlice), [&](std::int64_t i, auto width) {
          store(gradient + i, where_positive(load(out + i, width), load(gradient + i, width)),
                width);
        });
      });
    });
  }

  void softmax(std::int64_t rows, std::int64_t groups, std::int64_t width, Dtype dtype,
               void* x) override {
    with_dtype(dtype, [&](auto element) {
      for_row_blocks(pool_, rows, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first * groups; i < last * groups; ++i)
          softmax_row(static_cast<decltype(element)*>(x) + i * width, width);
      });
    });
  }

  void softmax_backward(std::int64_t rows, std::int64_t groups, std::int64_t width, Dtype dtype,
                        const void* y, void* dy) override {
    with_dtype(dtype, [&](auto element) {
      using T = decltype(element);
      for_row_blocks(pool_, rows, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t group = first * groups; group < last * groups; ++group) {
          const T* out = static_cast<const T*>(y) + group * width;
          T* gradient = static_cast<T*>(dy) + group * width;
          Lanes products{};
          for_lanes(width, [&](std::int64_t i, auto w) {
            products += load(out + i, w) * load(gradient + i, w);
          });
          const Lanes mean = broadcast(sum(products));
          for_lanes(width, [&](std::int64_t i, auto w) {
            store(gradient + i, load(out + i, w) * (load(gradient + i, w) - mean), w);
          });
        }
      });
    });
  }

 private:
  // y = [residual +] scale * dropout(x)
  void add_scaled_dropout(const Sequences& sequences, const Dropout& dropout, float scale,
                          std::int64_t columns, Dtype dtype, const void* residual, const void* x,
                          void* y) {
    const DropoutMasks masks(dropout);
    with_dtype(dtype, [&](auto element) {
      using T = decltype(element);
      for_each_row(pool_, sequences, [&](std::int64_t row, std::int64_t sentence, std::int64_t t) {
        for_column_blocks(columns, [&](std::int64_t first, std::int64_t count) {
          const std::int64_t at = row * columns + first;
          const T* in = static_cast<const T*>(x) + at;
          const T* added = residual ? static_cast<const T*>(residual) + at : nullptr;
          float factors[kDropoutBlock];
          masks.factors(sentence, t, first, count, factors);
          for_lanes(count, [&](std::int64_t i, auto width) {
            Lanes v = load(in + i, width) * scale * load(factors + i, width);
            if (added) v += load(added + i, width);
            store(static_cast<T*>(y) + at + i, v, width);
          });
        });
      });
    });
  }

  // Of sinusoids whose first `half` channels are sines.
  static float sinusoid(std::int64_t position, std::int64_t channel, std::int64_t half) {
    const auto c = static_cast<double>(channel % half);
    const double frequency =
        std::pow(10000.0, -c / static_cast<double>(std::max<std::int64_t>(half - 1, 1)));
    const double angle = static_cast<double>(position) * frequency;
    return static_cast<float>(channel < half ? std::sin(angle) : std::cos(angle));
  }

  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<SequenceOps> make_sequence_ops(ThreadPool& pool) {
  return std::make_unique<CpuSequenceOps>(pool);
}

}  // namespace memfloor::cpu

// Layer norm: rows are independent; parameter gradients are summed over fixed blocks of rows.
#include "backends/layer_norm.h"

#include <cmath>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/lane_math.h"
#include "backends/cpu/row_lanes.h"
#include "backends/cpu/rows.h"

namespace memfloor::cpu {
namespace {

class CpuLayerNorm final : public LayerNorm {
 public:
  CpuLayerNorm(const LayerNormDescriptor& d, ThreadPool& pool)
      : d_(d), count_(static_cast<float>(d.channels)), pool_(pool) {
    plan_.backward_scratch = kBlocks * 2 * d.channels * 4;
  }

  void forward(std::int64_t rows, const void* x, const float* gamma, const float* beta, void* y,
               float* statistics) const override {
    with_dtype(d_.dtype, [&](auto element) {
      using T = decltype(element);
      for_row_blocks(pool_, rows, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t row = first; row < last; ++row)
          normalize(static_cast<const T*>(x) + row * d_.channels, gamma, beta,
                    static_cast<T*>(y) + row * d_.channels, statistics + 2 * row);
      });
    });
  }

  void backward(std::int64_t rows, const void* x, const float* statistics, const float* gamma,
                const void* dy, void* dx, float* dgamma, float* dbeta,
                void* scratch) const override {
    auto* sums = static_cast<float*>(scratch);  // (kBlocks, 2, channels)
    const std::int64_t block_rows = ceil_div(rows, kBlocks);
    with_dtype(d_.dtype, [&](auto element) {
      using T = decltype(element);
      pool_.parallel_for(kBlocks, [&](std::int64_t block, int) {
        float* of_block = sums + block * 2 * d_.channels;
        std::fill(of_block, of_block + 2 * d_.channels, 0.0f);
        const std::int64_t last = std::min(rows, (block + 1) * block_rows);
        for (std::int64_t row = block * block_rows; row < last; ++row) {
          const std::int64_t at = row * d_.channels;
          gradient(static_cast<const T*>(x) + at, statistics + 2 * row, gamma,
                   static_cast<const T*>(dy) + at, static_cast<T*>(dx) + at, of_block,
                   of_block + d_.channels);
        }
      });
    });
    for_lanes(d_.channels, [&](std::int64_t c, auto width) {
      Lanes scale{}, shift{};
      for (std::int64_t block = 0; block < kBlocks; ++block) {
        const float* of_block = sums + block * 2 * d_.channels + c;
        scale += load(of_block, width);
        shift += load(of_block + d_.channels, width);
      }
      store(dgamma + c, scale, width);
      store(dbeta + c, shift, width);
    });
  }

 private:
  static constexpr std::int64_t kBlocks = 16;  // of rows, however many there are

  template <class T>
  void normalize(const T* x, const float* gamma, const float* beta, T* y, float* statistics) const {
    Lanes sums{};
    for_lanes(d_.channels, [&](std::int64_t c, auto width) { sums += load(x + c, width); });
    const float mean = sum(sums) / count_;
    const Lanes center = broadcast(mean);
    Lanes squares{};
    for_lanes(d_.channels, [&](std::int64_t c, auto width) {
      const Lanes v = only(load(x + c, width) - center, width);
      squares += v * v;
    });
    const float inverse = 1 / std::sqrt(sum(squares) / count_ + kEpsilon);
    statistics[0] = mean, statistics[1] = inverse;
    for_lanes(d_.channels, [&](std::int64_t c, auto width) {
      const Lanes normal = (load(x + c, width) - center) * inverse;
      store(y + c, normal * load(gamma + c, width) + load(beta + c, width), width);
    });
  }

  // With g = gamma dy, n the normalised input and averages over the row: dx = inverse (g - mean(g)
  // - n mean(g n)). Adds n dy and dy to dgamma and dbeta.
  template <class T>
  void gradient(const T* x, const float* statistics, const float* gamma, const T* dy, T* dx,
                float* dgamma, float* dbeta) const {
    const Lanes center = broadcast(statistics[0]);
    const float inverse = statistics[1];
    Lanes sums{}, products{};
    for_lanes(d_.channels, [&](std::int64_t c, auto width) {
      const Lanes g = load(dy + c, width);
      const Lanes normal = (load(x + c, width) - center) * inverse;
      store(dgamma + c, load(dgamma + c, width) + g * normal, width);
      store(dbeta + c, load(dbeta + c, width) + g, width);
      const Lanes scaled = g * load(gamma + c, width);  // 0 in lanes without an element
      sums += scaled;
      products += scaled * normal;
    });
    const Lanes mean = broadcast(sum(sums) / count_);
    const float slope = sum(products) / count_;
    for_lanes(d_.channels, [&](std::int64_t c, auto width) {
      const Lanes normal = (load(x + c, width) - center) * inverse;
      const Lanes g = load(dy + c, width) * load(gamma + c, width);
      store(dx + c, (g - mean - normal * slope) * inverse, width);
    });
  }

  const LayerNormDescriptor d_;
  const float count_;
  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<LayerNorm> make_layer_norm(const LayerNormDescriptor& descriptor,
                                           ThreadPool& pool) {
  return std::make_unique<CpuLayerNorm>(descriptor, pool);
}

}  // namespace memfloor::cpu

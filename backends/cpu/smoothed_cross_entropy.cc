// Label-smoothed cross-entropy over many classes: a row stays in the nearest cache while it is
// read three times.
#include "backends/smoothed_cross_entropy.h"

#include <array>
#include <cmath>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/slices.h"
#include "backends/cpu/softmax.h"

namespace memfloor::cpu {
namespace {

class CpuSmoothedCrossEntropy final : public SmoothedCrossEntropy {
 public:
  CpuSmoothedCrossEntropy(const SmoothedCrossEntropyDescriptor& d, ThreadPool& pool)
      : d_(d), pool_(pool), everyones_(d.smoothing / static_cast<float>(d.classes)) {}

  void forward(std::int64_t rows, float* logits, const std::int32_t* labels,
               LossSums* sums) const override {
    constexpr std::int64_t kBlocks = 64;  // of rows; however many, so that they need no scratch
    std::array<LossSums, kBlocks> of_block;
    const std::int64_t block_rows = ceil_div(rows, kBlocks);
    pool_.parallel_for(kBlocks, [&](std::int64_t block, int) {
      const std::int64_t last = std::min(rows, (block + 1) * block_rows);
      for (std::int64_t row = block * block_rows; row < last; ++row)
        log_probabilities(logits + row * d_.classes, labels[row], of_block[block]);
    });
    for (const LossSums& block : of_block) {
      sums->loss += block.loss;
      sums->correct += block.correct;
    }
  }

  // In place, 16-bit rows are written where earlier rows of log-probabilities were read. Rows
  // [n, 2 n) are read from beyond what they write, so they may be done in parallel.
  void backward(std::int64_t rows, const float* log_probabilities, const std::int32_t* labels,
                float scale, Dtype dtype, void* dlogits) const override {
    with_dtype(dtype, [&](auto element) {
      using T = decltype(element);
      for (std::int64_t first = 0; first < rows;) {
        const std::int64_t wave = sizeof(T) == 4 ? rows : std::max<std::int64_t>(1, first);
        const std::int64_t last = std::min(rows, first + wave);
        pool_.parallel_for(last - first, [&](std::int64_t i, int) {
          const std::int64_t at = (first + i) * d_.classes;
          gradient(log_probabilities + at, labels[first + i], scale, static_cast<T*>(dlogits) + at);
        });
        first = last;
      }
    });
  }

 private:
  // The sum of f(element, width) over a row; FP32 within blocks, so that no sum is long.
  template <class F>
  double sum_of(F&& f) const {
    constexpr std::int64_t kBlock = 512;
    double total = 0;
    for (std::int64_t first = 0; first < d_.classes; first += kBlock) {
      Lanes sums{};
      for_lanes(std::min(kBlock, d_.classes - first),
                [&](std::int64_t i, auto width) { sums += f(first + i, width); });
      total += sum(sums);
    }
    return total;
  }

  void log_probabilities(float* row, std::int32_t label, LossSums& sums) const {
    const float most = largest_of(row, d_.classes);
    const bool correct = row[label] == most && std::find(row, row + label, most) == row + label;
    const Lanes highest = broadcast(most);
    const double total = sum_of([&](std::int64_t i, auto width) {
      return exponential(load(row + i, width, kNothing) - highest);
    });
    const Lanes logarithm = broadcast(static_cast<float>(std::log(total)));
    const double every = sum_of([&](std::int64_t i, auto width) {
      const Lanes v = load(row + i, width) - highest - logarithm;
      store(row + i, v, width);
      return only(v, width);
    });
    sums.loss -= (1.0 - d_.smoothing) * row[label] + everyones_ * every;
    sums.correct += correct;
  }

  template <class T>
  void gradient(const float* log_probabilities, std::int32_t label, float scale, T* out) const {
    const Lanes smooth = broadcast(everyones_);
    const float of_label = log_probabilities[label];  // may be overwritten by `out`
    for_lanes(d_.classes, [&](std::int64_t i, auto width) {
      store(out + i, (exponential(load(log_probabilities + i, width)) - smooth) * scale, width);
    });
    const Lanes probability = exponential(broadcast(of_label));
    out[label] = T((probability[0] - everyones_ - (1 - d_.smoothing)) * scale);
  }

  const SmoothedCrossEntropyDescriptor d_;
  ThreadPool& pool_;
  const float everyones_;  // part of the target's probability
};

}  // namespace

std::unique_ptr<SmoothedCrossEntropy> make_smoothed_cross_entropy(
    const SmoothedCrossEntropyDescriptor& descriptor, ThreadPool& pool) {
  return std::make_unique<CpuSmoothedCrossEntropy>(descriptor, pool);
}

}  // namespace memfloor::cpu

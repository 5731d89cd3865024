// Batch norm + ReLU: every pass goes image by image, so that an image is read from memory once.
#include <cmath>

#include "backends/cpu/channel_statistics.h"
#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/masked_gradient.h"
#include "backends/cpu/normalize.h"
#include "backends/cpu/slices.h"
#include "core/ledger.h"

namespace memfloor::cpu {
namespace {

class CpuBatchNormRelu final : public BatchNormRelu {
 public:
  CpuBatchNormRelu(const BatchNormReluDescriptor& d, ThreadPool& pool) : d_(d), pool_(pool) {
    plan_.backward_scratch = 3 * d.channels * 4;  // coefficients
  }

  void statistics(const void* x, float* statistics) const override {
    for_images(x, [&](auto* image, std::int64_t n) {
      using T = std::remove_const_t<std::remove_pointer_t<decltype(image)>>;
      channel_statistics<T>(const_cast<T*>(image), nullptr, d_.pixels(), d_.channels,
                            statistics + n * 2 * d_.channels);
    });
  }

  void reduce(const float* statistics, float* mean, float* inverse_deviation, float* running,
              float momentum) const override {
    const auto pixels = static_cast<double>(d_.pixels());
    const double count = pixels * static_cast<double>(d_.images);
    for (std::int64_t c = 0; c < d_.channels; ++c) {
      // Means of equal counts average; squares add, plus the spread of the means (Chan et al.
      // 1983).
      double sum = 0, squares = 0;
      for (std::int64_t n = 0; n < d_.images; ++n) sum += statistics[(2 * n) * d_.channels + c];
      const double average = sum / static_cast<double>(d_.images);
      for (std::int64_t n = 0; n < d_.images; ++n) {
        const double offset = statistics[(2 * n) * d_.channels + c] - average;
        squares += statistics[(2 * n + 1) * d_.channels + c] + pixels * offset * offset;
      }
      mean[c] = static_cast<float>(average);
      inverse_deviation[c] = static_cast<float>(1 / std::sqrt(squares / count + kEpsilon));
      if (!running) continue;
      const double unbiased = count > 1 ? squares / (count - 1) : squares / count;
      float& running_mean = running[c];
      float& running_variance = running[d_.channels + c];
      running_mean += momentum * (mean[c] - running_mean);
      running_variance += momentum * (static_cast<float>(unbiased) - running_variance);
    }
  }

  void inverse_running_deviation(const float* running, float* inverse_deviation) const override {
    for (std::int64_t c = 0; c < d_.channels; ++c)
      inverse_deviation[c] = 1 / std::sqrt(running[d_.channels + c] + kEpsilon);
  }

  void forward(const void* x, const float* mean, const float* inverse_deviation, const float* gamma,
               const float* beta, void* y) const override {
    for_images(x, [&](auto* image, std::int64_t n) {
      using T = std::remove_const_t<std::remove_pointer_t<decltype(image)>>;
      normalize_relu(image, static_cast<T*>(y) + n * d_.pixels() * d_.channels, d_.pixels(),
                     d_.channels, mean, inverse_deviation, gamma, beta);
    });
  }

  void mask_gradient(const MaskedGradientSums& m, void* dy) const override {
    for_images(m.x, [&](auto* image, std::int64_t n) {
      using T = std::remove_const_t<std::remove_pointer_t<decltype(image)>>;
      const std::int64_t first = n * d_.pixels() * d_.channels;
      mask_and_sum(image, static_cast<const T*>(m.y) + first, static_cast<T*>(dy) + first, m.mean,
                   d_.pixels(), d_.channels, m.sums + n * 2 * d_.channels);
    });
  }

  void backward(const void* x, const void* dy, const float* mean, const float* inverse_deviation,
                const float* gamma, const float* sums, void* dx, bool accumulate, float* dgamma,
                float* dbeta, void* scratch) const override {
    auto* coefficients = static_cast<float*>(scratch);
    combine(sums, inverse_deviation, gamma, dgamma, dbeta, coefficients);
    input_gradient(x, dy, mean, coefficients, dx, accumulate);
  }

 private:
  // body(pointer to the image's elements, image) for every image, in parallel.
  template <class Body>
  void for_images(const void* x, Body&& body) const {
    with_dtype(d_.dtype, [&](auto element) {
      using T = decltype(element);
      pool_.parallel_for(d_.images, [&](std::int64_t n, int) {
        body(static_cast<const T*>(x) + n * d_.pixels() * d_.channels, n);
      });
    });
  }

  // dx = a dy - b (x - mean) - c, with a = gamma * inverse_deviation.
  void combine(const float* sums, const float* inverse_deviation, const float* gamma, float* dgamma,
               float* dbeta, float* coefficients) const {
    const double count = static_cast<double>(d_.images) * static_cast<double>(d_.pixels());
    for (std::int64_t c = 0; c < d_.channels; ++c) {
      double sum = 0, product = 0;
      for (std::int64_t n = 0; n < d_.images; ++n) {
        sum += sums[2 * n * d_.channels + c];
        product += sums[(2 * n + 1) * d_.channels + c];
      }
      const double inverse = inverse_deviation[c];
      dbeta[c] = static_cast<float>(sum);
      dgamma[c] = static_cast<float>(product * inverse);
      const double a = gamma[c] * inverse;
      coefficients[c] = static_cast<float>(a);
      coefficients[d_.channels + c] = static_cast<float>(a * inverse * inverse * product / count);
      coefficients[2 * d_.channels + c] = static_cast<float>(a * sum / count);
    }
  }

  void input_gradient(const void* x, const void* dy, const float* mean, const float* coefficients,
                      void* dx, bool accumulate) const {
    for_images(x, [&](auto* image, std::int64_t n) {
      using T = std::remove_const_t<std::remove_pointer_t<decltype(image)>>;
      const std::int64_t first = n * d_.pixels() * d_.channels;
      normalized_input_gradient(image, static_cast<const T*>(dy) + first,
                                static_cast<T*>(dx) + first, accumulate, d_.pixels(), d_.channels,
                                mean, coefficients);
    });
  }

  const BatchNormReluDescriptor d_;
  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<BatchNormRelu> make_batch_norm_relu(const BatchNormReluDescriptor& descriptor,
                                                    ThreadPool& pool) {
  return std::make_unique<CpuBatchNormRelu>(descriptor, pool);
}

}  // namespace memfloor::cpu

// Group norm + ReLU: images are independent, so each is done by one thread from end to end, with
// the kernels of batch norm and statistics spread over its channels.
#include "backends/group_norm_relu.h"

#include <cmath>

#include "backends/cpu/channel_statistics.h"
#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/masked_gradient.h"
#include "backends/cpu/normalize.h"
#include "core/ledger.h"

namespace memfloor::cpu {
namespace {

class CpuGroupNormRelu final : public GroupNormRelu {
 public:
  CpuGroupNormRelu(const GroupNormReluDescriptor& d, ThreadPool& pool)
      : d_(d), pool_(pool), group_channels_(d.channels / d.groups) {
    MEMFLOOR_CHECK(d.channels % d.groups == 0, d.channels, " channels are not ", d.groups,
                   " equal groups");
    thread_bytes_ = aligned(4 * d.channels * 4);
    plan_.forward_scratch = pool.threads() * thread_bytes_;
    plan_.backward_scratch = pool.threads() * thread_bytes_ + d.images * 2 * d.channels * 4;
  }

  void forward(const void* x, const float* gamma, const float* beta, void* y, float* statistics,
               void* scratch) const override {
    for_images([&](auto element, std::int64_t n, int thread) {
      using T = decltype(element);
      const T* image = at<T>(x, n);
      float* mean = thread_scratch(scratch, thread);
      float* inverse = mean + d_.channels;
      float* of_image = statistics + n * 2 * d_.groups;
      // channel_statistics() writes only where it is told to add something.
      channel_statistics<T>(const_cast<T*>(image), nullptr, d_.pixels(), d_.channels, mean);
      reduce(mean, of_image);
      spread(of_image, mean);
      spread(of_image + d_.groups, inverse);
      normalize_relu(image, at<T>(y, n), d_.pixels(), d_.channels, mean, inverse, gamma, beta);
    });
  }

  void backward(const void* x, const void* y, const float* statistics, const float* gamma, void* dy,
                void* dx, bool accumulate, float* dgamma, float* dbeta,
                void* scratch) const override {
    auto* sums = reinterpret_cast<float*>(
        static_cast<char*>(scratch) + pool_.threads() * thread_bytes_);  // (images, 2, channels)
    for_images([&](auto element, std::int64_t n, int thread) {
      using T = decltype(element);
      float* mean = thread_scratch(scratch, thread);
      float* coefficients = mean + d_.channels;
      const float* of_image = statistics + n * 2 * d_.groups;
      float* image_sums = sums + n * 2 * d_.channels;
      spread(of_image, mean);
      mask_and_sum(at<T>(x, n), at<T>(y, n), at<T>(dy, n), mean, d_.pixels(), d_.channels,
                   image_sums);
      combine(image_sums, of_image + d_.groups, gamma, coefficients);
      normalized_input_gradient(at<T>(x, n), at<T>(dy, n), at<T>(dx, n), accumulate, d_.pixels(),
                                d_.channels, mean, coefficients);
    });
    for (std::int64_t c = 0; c < d_.channels; ++c) {
      double shift = 0, scale = 0;
      for (std::int64_t n = 0; n < d_.images; ++n) {
        const float* image_sums = sums + n * 2 * d_.channels;
        const double inverse = statistics[(2 * n + 1) * d_.groups + c / group_channels_];
        shift += image_sums[c];
        scale += image_sums[d_.channels + c] * inverse;
      }
      dbeta[c] = static_cast<float>(shift);
      dgamma[c] = static_cast<float>(scale);
    }
  }

 private:
  // body(an element of the stored type, image, thread) for every image, in parallel.
  template <class Body>
  void for_images(Body&& body) const {
    with_dtype(d_.dtype, [&](auto element) {
      pool_.parallel_for(d_.images, [&](std::int64_t n, int thread) { body(element, n, thread); });
    });
  }

  template <class T>
  const T* at(const void* base, std::int64_t image) const {
    return static_cast<const T*>(base) + image * d_.pixels() * d_.channels;
  }
  template <class T>
  T* at(void* base, std::int64_t image) const {
    return static_cast<T*>(base) + image * d_.pixels() * d_.channels;
  }
  // (4, channels)
  float* thread_scratch(void* scratch, int thread) const {
    return reinterpret_cast<float*>(static_cast<char*>(scratch) + thread * thread_bytes_);
  }

  // One value a group to one value a channel.
  void spread(const float* groups, float* channels) const {
    for (std::int64_t c = 0; c < d_.channels; ++c) channels[c] = groups[c / group_channels_];
  }

  // (2, channels), means and sums of squared deviations, to (2, groups). Means of equal counts
  // average; squares add, plus the spread of the means (Chan et al. 1983).
  void reduce(const float* channels, float* statistics) const {
    const auto pixels = static_cast<double>(d_.pixels());
    const auto count = static_cast<double>(group_channels_);
    for (std::int64_t g = 0; g < d_.groups; ++g) {
      const float *means = channels + g * group_channels_, *deviations = means + d_.channels;
      double sum = 0, squares = 0;
      for (std::int64_t c = 0; c < group_channels_; ++c) sum += means[c];
      const double mean = sum / count;
      for (std::int64_t c = 0; c < group_channels_; ++c)
        squares += deviations[c] + pixels * (means[c] - mean) * (means[c] - mean);
      statistics[g] = static_cast<float>(mean);
      statistics[d_.groups + g] =
          static_cast<float>(1 / std::sqrt(squares / (pixels * count) + kEpsilon));
    }
  }

  // With g = gamma dy and averages over the group: dx = inverse (g - mean(g)) -
  // inverse^3 (x - mean) mean(g (x - mean)).
  void combine(const float* sums, const float* inverse, const float* gamma,
               float* coefficients) const {
    const auto count = static_cast<double>(d_.pixels() * group_channels_);
    for (std::int64_t first = 0; first < d_.channels; first += group_channels_) {
      const double deviation = inverse[first / group_channels_];
      double sum = 0, product = 0;
      for (std::int64_t c = first; c < first + group_channels_; ++c) {
        sum += static_cast<double>(gamma[c]) * sums[c];
        product += static_cast<double>(gamma[c]) * sums[d_.channels + c];
      }
      for (std::int64_t c = first; c < first + group_channels_; ++c) {
        coefficients[c] = static_cast<float>(gamma[c] * deviation);
        coefficients[d_.channels + c] =
            static_cast<float>(deviation * deviation * deviation * product / count);
        coefficients[2 * d_.channels + c] = static_cast<float>(deviation * sum / count);
      }
    }
  }

  const GroupNormReluDescriptor d_;
  ThreadPool& pool_;
  const std::int64_t group_channels_;
  std::int64_t thread_bytes_ = 0;
};

}  // namespace

std::unique_ptr<GroupNormRelu> make_group_norm_relu(const GroupNormReluDescriptor& descriptor,
                                                    ThreadPool& pool) {
  return std::make_unique<CpuGroupNormRelu>(descriptor, pool);
}

}  // namespace memfloor::cpu

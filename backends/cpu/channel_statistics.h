// Per-image, per-channel mean and sum of squared deviations of an NHWC tensor, in one pass.
// Values are shifted by the image's first pixel, which keeps the difference of sums free of
// cancellation.
#pragma once

#include <algorithm>

#include "backends/cpu/lanes.h"

namespace memfloor::cpu {

// Pixels summed before the sum joins the image's: one long chain of f32 sums would put gradients
// more than three times as far from the exact ones as PyTorch's are.
inline constexpr std::int64_t kStatisticsRun = 32;

/// image (pixels, channels); statistics (2, channels), or null where only the sum is wanted. When
/// `residual` is not null it is added to the image first (rounded as stored), so that the sum is in
/// the cache when it is looked at.
template <class T>
void channel_statistics(T* image, const T* residual, std::int64_t pixels, std::int64_t channels,
                        float* statistics) {
  float* means = statistics;
  float* deviations = statistics ? statistics + channels : nullptr;
  const float scale = 1.0f / static_cast<float>(pixels);
  const auto add_residual = [&](std::int64_t i) {
    store(image + i, load(image + i) + load(residual + i));
  };
  for_channel_groups(
      channels,
      [&](std::int64_t c, auto group) {
        constexpr int kGroup = decltype(group)::value;
        Lanes shift[kGroup]{}, sum[kGroup]{}, squares[kGroup]{};
        for (std::int64_t begin = 0; begin < pixels; begin += kStatisticsRun) {
          Lanes run_sum[kGroup]{}, run_squares[kGroup]{};
          const std::int64_t end = std::min(pixels, begin + kStatisticsRun);
          for (std::int64_t p = begin; p < end; ++p) {
            const std::int64_t pixel = p * channels + c;
            for (int g = 0; g < kGroup; ++g) {
              if (residual) add_residual(pixel + g * kLanes);
              const Lanes v = load(image + pixel + g * kLanes);
              if (p == 0) shift[g] = v;
              const Lanes d = v - shift[g];
              run_sum[g] += d;
              run_squares[g] += d * d;
            }
          }
          for (int g = 0; g < kGroup; ++g) sum[g] += run_sum[g], squares[g] += run_squares[g];
        }
        for (int g = 0; statistics && g < kGroup; ++g) {
          store(means + c + g * kLanes, shift[g] + sum[g] * scale);
          store(deviations + c + g * kLanes, squares[g] - sum[g] * sum[g] * scale);
        }
      },
      [&](std::int64_t c) {
        float shift = 0, sum = 0, squares = 0;
        for (std::int64_t p = 0; p < pixels; ++p) {
          T& value = image[p * channels + c];
          if (residual)
            value = T(static_cast<float>(value) + static_cast<float>(residual[p * channels + c]));
          const auto v = static_cast<float>(value);
          if (p == 0) shift = v;
          const float d = v - shift;
          sum += d;
          squares += d * d;
        }
        if (statistics) {
          means[c] = shift + sum * scale;
          deviations[c] = squares - sum * sum * scale;
        }
      });
}

}  // namespace memfloor::cpu

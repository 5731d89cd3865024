// The first pass of batch norm + ReLU backward over one image, wherever it is done.
#pragma once

#include <algorithm>

#include "backends/cpu/channel_statistics.h"
#include "backends/cpu/lanes.h"

namespace memfloor::cpu {

/// dy = 0 where y is not positive; sums (2, channels) = of dy, and of dy (x - mean).
/// x, y, dy: (pixels, channels).
template <class T>
void mask_and_sum(const T* x, const T* y, T* dy, const float* mean, std::int64_t pixels,
                  std::int64_t channels, float* sums) {
  for_channel_groups(
      channels,
      [&](std::int64_t c, auto group) {
        constexpr int kGroup = decltype(group)::value;
        Lanes m[kGroup], sum[kGroup]{}, product[kGroup]{};
        for (int g = 0; g < kGroup; ++g) m[g] = load(mean + c + g * kLanes);
        for (std::int64_t begin = 0; begin < pixels; begin += kStatisticsRun) {
          Lanes run_sum[kGroup]{}, run_product[kGroup]{};
          const std::int64_t end = std::min(pixels, begin + kStatisticsRun);
          for (std::int64_t p = begin; p < end; ++p)
            for (int g = 0; g < kGroup; ++g) {
              const std::int64_t at = p * channels + c + g * kLanes;
              const Lanes masked = where_positive(load(y + at), load(dy + at));
              store(dy + at, masked);
              run_sum[g] += masked;
              run_product[g] += masked * (load(x + at) - m[g]);
            }
          for (int g = 0; g < kGroup; ++g) sum[g] += run_sum[g], product[g] += run_product[g];
        }
        for (int g = 0; g < kGroup; ++g) {
          store(sums + c + g * kLanes, sum[g]);
          store(sums + channels + c + g * kLanes, product[g]);
        }
      },
      [&](std::int64_t c) {
        float sum = 0, product = 0;
        for (std::int64_t i = c; i < pixels * channels; i += channels) {
          if (!(static_cast<float>(y[i]) > 0)) dy[i] = T(0.0f);
          const auto g = static_cast<float>(dy[i]);
          sum += g;
          product += g * (static_cast<float>(x[i]) - mean[c]);
        }
        sums[c] = sum;
        sums[channels + c] = product;
      });
}

}  // namespace memfloor::cpu

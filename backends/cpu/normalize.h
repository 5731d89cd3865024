// What batch norm and group norm do to one image once its statistics are known: a line through
// every value, with coefficients that belong to the channel.
#pragma once

#include "backends/cpu/lanes.h"

namespace memfloor::cpu {

/// y = max(0, (x - mean) * inverse_deviation * gamma + beta). x, y: (pixels, channels).
template <class T>
void normalize_relu(const T* x, T* y, std::int64_t pixels, std::int64_t channels, const float* mean,
                    const float* inverse_deviation, const float* gamma, const float* beta) {
  for_channel_groups(
      channels,
      [&](std::int64_t c, auto group) {
        constexpr int kGroup = decltype(group)::value;
        Lanes scale[kGroup], m[kGroup], shift[kGroup];
        for (int g = 0; g < kGroup; ++g) {
          const std::int64_t at = c + g * kLanes;
          scale[g] = load(inverse_deviation + at) * load(gamma + at);
          m[g] = load(mean + at), shift[g] = load(beta + at);
        }
        for (std::int64_t i = c; i < pixels * channels; i += channels)
          for (int g = 0; g < kGroup; ++g) {
            const Lanes v = load(x + i + g * kLanes);
            store(y + i + g * kLanes, max((v - m[g]) * scale[g] + shift[g], Lanes{}));
          }
      },
      [&](std::int64_t c) {
        const float scale = inverse_deviation[c] * gamma[c];
        for (std::int64_t i = c; i < pixels * channels; i += channels) {
          const float value = (static_cast<float>(x[i]) - mean[c]) * scale + beta[c];
          y[i] = T(value > 0 ? value : 0.0f);
        }
      });
}

/// The input gradient of a normalisation, a dy - b (x - mean) - k; coefficients (3, channels): a, b
/// and k. x, dy, dx: (pixels, channels); dx may be dy.
template <class T>
void normalized_input_gradient(const T* x, const T* dy, T* dx, bool accumulate, std::int64_t pixels,
                               std::int64_t channels, const float* mean,
                               const float* coefficients) {
  const std::int64_t size = pixels * channels;
  const float *a = coefficients, *b = a + channels, *k = b + channels;
  for_channel_groups(
      channels,
      [&](std::int64_t c, auto group) {
        constexpr int kGroup = decltype(group)::value;
        Lanes m[kGroup], va[kGroup], vb[kGroup], vk[kGroup];
        for (int g = 0; g < kGroup; ++g) {
          const std::int64_t at = c + g * kLanes;
          m[g] = load(mean + at), va[g] = load(a + at), vb[g] = load(b + at), vk[g] = load(k + at);
        }
        for (std::int64_t i = c; i < size; i += channels)
          for (int g = 0; g < kGroup; ++g) {
            const std::int64_t at = i + g * kLanes;
            const Lanes value = load(dy + at) * va[g] - (load(x + at) - m[g]) * vb[g] - vk[g];
            store(dx + at, accumulate ? load(dx + at) + value : value);
          }
      },
      [&](std::int64_t c) {
        for (std::int64_t i = c; i < size; i += channels) {
          const float value =
              static_cast<float>(dy[i]) * a[c] - (static_cast<float>(x[i]) - mean[c]) * b[c] - k[c];
          dx[i] = T(accumulate ? static_cast<float>(dx[i]) + value : value);
        }
      });
}

}  // namespace memfloor::cpu

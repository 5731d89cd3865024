// Per-image, per-channel mean and sum of squared deviations of an NHWC tensor, in one pass.
// Values are shifted by the image's first pixel, which keeps the difference of sums free of
// cancellation.
#pragma once

#include "backends/cpu/lanes.h"

namespace memfloor::cpu {

/// image (pixels, channels); statistics (2, channels), or null where only the sum is wanted. When
/// `residual` is not null it is added to the image first (rounded as stored), so that the sum is in
/// the cache when it is looked at.
template <class T>
void channel_statistics(T* image, const T* residual, std::int64_t pixels, std::int64_t channels,
                        float* statistics) {
  float* means = statistics;
  float* deviations = statistics ? statistics + channels : nullptr;
  const float scale = 1.0f / static_cast<float>(pixels);
  std::int64_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) {
    Lanes shift{}, sum{}, squares{};
    for (std::int64_t p = 0; p < pixels; ++p) {
      T* value = image + p * channels + c;
      if (residual) store(value, load(value) + load(residual + p * channels + c));
      if (!means) continue;
      const Lanes v = load(value);
      if (p == 0) shift = v;
      const Lanes d = v - shift;
      sum += d;
      squares += d * d;
    }
    if (means) {
      store(means + c, shift + sum * scale);
      store(deviations + c, squares - sum * sum * scale);
    }
  }
  for (; c < channels; ++c) {
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
    if (means) {
      means[c] = shift + sum * scale;
      deviations[c] = squares - sum * sum * scale;
    }
  }
}

}  // namespace memfloor::cpu

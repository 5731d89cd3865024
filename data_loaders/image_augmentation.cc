#include "data_loaders/image_augmentation.h"

#include <cstddef>

#include "core/error.h"
#include "core/philox.h"

namespace memfloor {
namespace {

/// The index in [0, size) that `position` in (-size, 2 * size - 1) mirrors.
int reflect(int position, int size) {
  if (position < 0) return -position;
  if (position >= size) return 2 * (size - 1) - position;
  return position;
}

}  // namespace

Augmentation draw_augmentation(std::uint32_t seed, std::int64_t minibatch, std::int64_t sample) {
  const auto words = Philox(seed, Purpose::augmentation)(
      {static_cast<std::uint32_t>(minibatch), static_cast<std::uint32_t>(sample), 0, 0});
  constexpr std::uint32_t kOffsets = 2 * kAugmentationPadding + 1;
  return {static_cast<int>(uniform_below(words[0], kOffsets)),
          static_cast<int>(uniform_below(words[1], kOffsets)), uniform_below(words[2], 2) == 1};
}

void augment_image(const ImageFormat& format, const Augmentation& augmentation,
                   const std::uint8_t* source, std::uint8_t* image) {
  const auto [height, width, channels, classes] = format;
  MEMFLOOR_CHECK(height > kAugmentationPadding && width > kAugmentationPadding, "images of ",
                 height, " x ", width, " are too small to reflect ", kAugmentationPadding,
                 " pixels");
  for (int y = 0; y < height; ++y) {
    const int source_y = reflect(y + augmentation.top - kAugmentationPadding, height);
    const std::uint8_t* row = source + static_cast<std::ptrdiff_t>(source_y) * width * channels;
    for (int x = 0; x < width; ++x) {
      const int cropped_x = augmentation.flip ? width - 1 - x : x;
      const int source_x = reflect(cropped_x + augmentation.left - kAugmentationPadding, width);
      for (int c = 0; c < channels; ++c) *image++ = row[source_x * channels + c];
    }
  }
}

}  // namespace memfloor

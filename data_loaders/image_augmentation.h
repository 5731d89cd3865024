// The augmentation of the DSR recipe (Mostafa and Wang, ICML 2019): pad 4 pixels by reflection,
// crop to the original size at a random place, flip left to right half of the time.
#pragma once

#include <cstdint>

#include "data_loaders/image_dataset.h"

namespace memfloor {

/// Pixels of padding on each side. Reflection does not repeat the edge: 3 2 1 | 0 1 2 3.
inline constexpr int kAugmentationPadding = 4;

struct Augmentation {
  int top = kAugmentationPadding;   // of the crop in the padded image: 0 ... 2 * padding
  int left = kAugmentationPadding;  // likewise
  bool flip = false;                // after the crop
};

/// What happens to a sample: a function of the seed and the sample's place in the run alone.
Augmentation draw_augmentation(std::uint32_t seed, std::int64_t minibatch, std::int64_t sample);

/// Pads, crops and flips `source` into `image`, both (height, width, channels), without ever
/// building the padded image. Height and width must exceed the padding.
void augment_image(const ImageFormat& format, const Augmentation& augmentation,
                   const std::uint8_t* source, std::uint8_t* image);

}  // namespace memfloor

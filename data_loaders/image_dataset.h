// Image classification data sets, as the trainer sees them: bytes in, labels in, nothing staged.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "data_loaders/split.h"

namespace memfloor {

/// Height, width, channels (interleaved: HWC), number of classes.
struct ImageFormat {
  int height = 32, width = 32, channels = 3, classes = 10;

  /// Bytes of one image.
  std::int64_t bytes() const { return std::int64_t{1} * height * width * channels; }
};

class ImageDataset {
 public:
  virtual ~ImageDataset() = default;

  virtual ImageFormat format() const = 0;
  /// Images; throws Error for Split::valid, which image data sets do not have.
  virtual std::int64_t size(Split split) const = 0;
  /// Writes image `index` as (height, width, channels) bytes. Thread-safe.
  virtual void read_image(Split split, std::int64_t index, std::uint8_t* image) const = 0;
  virtual int label(Split split, std::int64_t index) const = 0;
  /// What identifies the data in a result file: name, files, their SHA-256.
  virtual nlohmann::json provenance() const = 0;
};

/// Which samples of which minibatch, and what is done to them.
struct PartRequest {
  Split split = Split::train;
  std::uint32_t seed = 0;
  std::uint32_t epoch = 0;
  std::int64_t minibatch = 0;         // counted over the whole run: keys the augmentation
  std::int64_t minibatch_start = 0;   // position of its first sample in the epoch's order
  std::int64_t first = 0, count = 0;  // the part, as sample indices in the minibatch
  bool shuffle = true;                // by (seed, epoch)
  bool augment = true;                // reflect-pad 4, random crop, horizontal flip
};

/// Fills images (count, height, width, channels) and labels (count). The bytes of a sample depend
/// on (seed, epoch, minibatch, its index in the minibatch) only, not on how the minibatch is cut.
void load_part(const ImageDataset& dataset, const PartRequest& request, std::uint8_t* images,
               std::int32_t* labels);

/// The official binary files (data_batch_{1..5}.bin, test_batch.bin) in `directory` or in its
/// cifar-10-batches-bin/ folder, memory-mapped. Throws InputError for a missing, truncated or
/// overlong file, or a label above 9, saying which file and what to do.
std::unique_ptr<ImageDataset> open_cifar10(const std::string& directory);

/// A learnable 10-class stand-in of CIFAR-10's format, computed when read.
std::unique_ptr<ImageDataset> make_synthetic_images(std::uint32_t seed, ImageFormat format = {},
                                                    std::int64_t train_size = 50000,
                                                    std::int64_t test_size = 10000);

}  // namespace memfloor

// Cuts a part out of a minibatch, image by image, straight from the data set.
#include <vector>

#include "core/error.h"
#include "core/philox.h"
#include "data_loaders/image_augmentation.h"
#include "data_loaders/image_dataset.h"

namespace memfloor {

void load_part(const ImageDataset& dataset, const PartRequest& request, std::uint8_t* images,
               std::int32_t* labels) {
  const std::int64_t size = dataset.size(request.split);
  const std::int64_t begin = request.minibatch_start + request.first;
  MEMFLOOR_CHECK(request.minibatch_start >= 0 && request.first >= 0 && request.count >= 0 &&
                     begin + request.count <= size,
                 "samples ", begin, " to ", begin + request.count, " are not all among the ", size,
                 " of the data set");
  const ImageFormat format = dataset.format();
  std::vector<std::uint8_t> original(request.augment ? format.bytes() : 0);  // of one image
  const Permutation shuffled(request.seed, request.epoch, size);

  for (std::int64_t i = 0; i < request.count; ++i, images += format.bytes()) {
    const std::int64_t index = request.shuffle ? shuffled(begin + i) : begin + i;
    labels[i] = dataset.label(request.split, index);
    if (request.augment) {
      dataset.read_image(request.split, index, original.data());
      augment_image(format, draw_augmentation(request.seed, request.minibatch, request.first + i),
                    original.data(), images);
    } else {
      dataset.read_image(request.split, index, images);
    }
  }
}

}  // namespace memfloor

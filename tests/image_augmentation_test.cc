// Augmentation against a naive pad-then-crop, and parts against the whole minibatch.
#include "data_loaders/image_augmentation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "core/philox.h"
#include "data_loaders/image_dataset.h"

namespace memfloor {
namespace {

using Bytes = std::vector<std::uint8_t>;

/// Images whose every byte tells index, place and channel; labels are not balanced on purpose.
class NumberedImages final : public ImageDataset {
 public:
  explicit NumberedImages(ImageFormat format = {7, 6, 3, 10}) : format_(format) {}
  ImageFormat format() const override { return format_; }
  std::int64_t size(Split split) const override { return split == Split::train ? 100 : 20; }
  void read_image(Split split, std::int64_t index, std::uint8_t* image) const override {
    for (std::int64_t i = 0; i < format_.bytes(); ++i)
      image[i] = static_cast<std::uint8_t>(index * 31 + i * 7 + (split == Split::test ? 128 : 0));
  }
  int label(Split, std::int64_t index) const override { return static_cast<int>(index); }
  nlohmann::json provenance() const override { return {}; }

 private:
  ImageFormat format_;
};

/// numpy.pad(image, mode="reflect"), then crop, then flip, each in a buffer of its own.
Bytes naive_augmentation(const ImageFormat& f, const Augmentation& a, const Bytes& source) {
  constexpr int kPad = 4;
  const int padded_width = f.width + 2 * kPad;
  const auto mirrored = [](int i, int size) {  // ... 2 1 | 0 1 2 ... by walking
    std::vector<int> walk;
    for (int k = 0; k < size; ++k) walk.push_back(k);
    for (int k = size - 2; k > 0; --k) walk.push_back(k);
    const int period = static_cast<int>(walk.size());
    return walk[((i % period) + period) % period];
  };
  Bytes padded;
  for (int y = -kPad; y < f.height + kPad; ++y)
    for (int x = -kPad; x < f.width + kPad; ++x)
      for (int c = 0; c < f.channels; ++c)
        padded.push_back(
            source[(mirrored(y, f.height) * f.width + mirrored(x, f.width)) * f.channels + c]);
  Bytes result;
  for (int y = 0; y < f.height; ++y) {
    std::vector<Bytes> pixels;
    for (int x = 0; x < f.width; ++x) {
      const auto pixel = padded.begin() + ((y + a.top) * padded_width + x + a.left) * f.channels;
      pixels.emplace_back(pixel, pixel + f.channels);
    }
    if (a.flip) std::reverse(pixels.begin(), pixels.end());
    for (const Bytes& pixel : pixels) result.insert(result.end(), pixel.begin(), pixel.end());
  }
  return result;
}

TEST(AugmentImage, EqualsPadCropFlipAtEveryOffset) {
  for (const ImageFormat& format :
       {ImageFormat{7, 6, 3, 10}, ImageFormat{5, 9, 1, 10}, ImageFormat{32, 32, 3, 10}}) {
    const NumberedImages data(format);
    Bytes source(format.bytes()), image(format.bytes());
    data.read_image(Split::train, 3, source.data());
    for (int top = 0; top <= 8; ++top)
      for (int left = 0; left <= 8; ++left)
        for (bool flip : {false, true}) {
          const Augmentation augmentation{top, left, flip};
          augment_image(format, augmentation, source.data(), image.data());
          ASSERT_EQ(image, naive_augmentation(format, augmentation, source))
              << format.height << " x " << format.width << " at " << top << ", " << left << ", "
              << flip;
        }
  }
}

TEST(AugmentImage, TheMiddleCropIsTheImage) {
  const NumberedImages data;
  Bytes source(data.format().bytes()), image(data.format().bytes());
  data.read_image(Split::train, 3, source.data());
  augment_image(data.format(), {}, source.data(), image.data());
  EXPECT_EQ(image, source);
}

TEST(AugmentImage, RefusesImagesTooSmallToReflect) {
  Bytes bytes(4 * 32 * 3);
  EXPECT_THROW(augment_image({4, 32, 3, 10}, {}, bytes.data(), bytes.data()), Error);
  EXPECT_THROW(augment_image({32, 4, 3, 10}, {}, bytes.data(), bytes.data()), Error);
}

TEST(DrawAugmentation, ReachesEveryOffsetAndBothFlipsEvenly) {
  std::set<std::tuple<int, int, bool>> seen;
  int flips = 0, top_sum = 0;
  constexpr int kDraws = 5000;
  for (int sample = 0; sample < kDraws; ++sample) {
    const Augmentation a = draw_augmentation(1, sample / 100, sample % 100);
    ASSERT_TRUE(a.top >= 0 && a.top <= 8 && a.left >= 0 && a.left <= 8);
    seen.emplace(a.top, a.left, a.flip);
    flips += a.flip;
    top_sum += a.top;
  }
  EXPECT_EQ(seen.size(), 9u * 9u * 2u);
  EXPECT_NEAR(flips, kDraws / 2, 180);  // five standard deviations
  EXPECT_NEAR(top_sum / double{kDraws}, 4, 0.19);
}

// The contract of reproducibility: these draws may never change.
TEST(DrawAugmentation, IsAFunctionOfSeedMinibatchAndSample) {
  const auto words = Philox::rounds({12, 34, 0, 0}, {5, 3});
  const Augmentation a = draw_augmentation(5, 12, 34);
  EXPECT_EQ(a.top, static_cast<int>(std::uint64_t{words[0]} * 9 >> 32));
  EXPECT_EQ(a.left, static_cast<int>(std::uint64_t{words[1]} * 9 >> 32));
  EXPECT_EQ(a.flip, words[2] >> 31);
}

// ---- parts of minibatches ----------------------------------------------------------------------

struct Part {
  Bytes images;
  std::vector<std::int32_t> labels;
  bool operator==(const Part&) const = default;
};

Part load(const ImageDataset& data, const PartRequest& request) {
  Part part{Bytes(request.count * data.format().bytes()), std::vector<std::int32_t>(request.count)};
  load_part(data, request, part.images.data(), part.labels.data());
  return part;
}

PartRequest second_minibatch_of_30() {
  PartRequest request;
  request.seed = 7;
  request.epoch = 2;
  request.minibatch = 9;
  request.minibatch_start = 30;
  request.count = 30;
  return request;
}

TEST(LoadPart, DoesNotDependOnTheCutting) {
  const NumberedImages data;
  const Part whole = load(data, second_minibatch_of_30());
  for (std::int64_t size : {1, 3, 7, 10}) {
    Part joined;
    for (std::int64_t first = 0; first < 30; first += size) {
      PartRequest request = second_minibatch_of_30();
      request.first = first;
      request.count = std::min(size, 30 - first);
      const Part part = load(data, request);
      joined.images.insert(joined.images.end(), part.images.begin(), part.images.end());
      joined.labels.insert(joined.labels.end(), part.labels.begin(), part.labels.end());
    }
    EXPECT_EQ(joined, whole) << "parts of " << size;
  }
}

TEST(LoadPart, ImagesAndLabelsFollowTheShuffledOrder) {
  const NumberedImages data;
  const Part part = load(data, second_minibatch_of_30());
  const Permutation order(7, 2, 100);
  Bytes source(data.format().bytes());
  for (std::int64_t i = 0; i < 30; ++i) {
    const std::int64_t index = order(30 + i);
    EXPECT_EQ(part.labels[i], index);
    data.read_image(Split::train, index, source.data());
    const Bytes expected = naive_augmentation(data.format(), draw_augmentation(7, 9, i), source);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(),
                           part.images.begin() + i * data.format().bytes()));
  }
}

TEST(LoadPart, AnEpochVisitsEverySampleOnce) {
  const NumberedImages data;
  PartRequest request;
  request.count = 100;
  std::vector<std::int32_t> labels = load(data, request).labels;
  std::sort(labels.begin(), labels.end());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(labels[i], i);
}

TEST(LoadPart, EvaluationIsInOrderAndUntouched) {
  const NumberedImages data;
  PartRequest request;
  request.split = Split::test;
  request.shuffle = request.augment = false;
  request.minibatch_start = 5;
  request.count = 10;
  const Part part = load(data, request);
  Bytes source(data.format().bytes());
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(part.labels[i], 5 + i);
    data.read_image(Split::test, 5 + i, source.data());
    EXPECT_TRUE(
        std::equal(source.begin(), source.end(), part.images.begin() + i * data.format().bytes()));
  }
}

TEST(LoadPart, EpochMinibatchAndSeedMatter) {
  const NumberedImages data;
  const Part part = load(data, second_minibatch_of_30());
  PartRequest request = second_minibatch_of_30();
  request.epoch = 3;
  EXPECT_NE(load(data, request).labels, part.labels);
  request = second_minibatch_of_30();
  request.minibatch = 10;
  EXPECT_EQ(load(data, request).labels, part.labels);
  EXPECT_NE(load(data, request).images, part.images);
  request = second_minibatch_of_30();
  request.seed = 8;
  EXPECT_NE(load(data, request).labels, part.labels);
}

TEST(LoadPart, RefusesSamplesBeyondTheDataSet) {
  const NumberedImages data;
  PartRequest request = second_minibatch_of_30();
  request.minibatch_start = 71;
  EXPECT_THROW(load(data, request), Error);
  request.minibatch_start = 70;
  EXPECT_NO_THROW(load(data, request));
  request.first = -1;
  EXPECT_THROW(load(data, request), Error);
}

}  // namespace
}  // namespace memfloor

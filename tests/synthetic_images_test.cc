// The stand-in data set: reproducible, balanced, learnable, but not by a linear glance.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/error.h"
#include "core/sha256.h"
#include "data_loaders/image_dataset.h"

namespace memfloor {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes image_of(const ImageDataset& data, Split split, std::int64_t index) {
  Bytes image(data.format().bytes());
  data.read_image(split, index, image.data());
  return image;
}

TEST(SyntheticImages, AreAFunctionOfSeedSplitAndIndex) {
  const auto data = make_synthetic_images(1), again = make_synthetic_images(1),
             other = make_synthetic_images(2);
  const Bytes image = image_of(*data, Split::train, 49999);
  image_of(*again, Split::test, 3);  // what was read before must not matter
  EXPECT_EQ(image_of(*again, Split::train, 49999), image);
  EXPECT_EQ(again->label(Split::train, 49999), data->label(Split::train, 49999));
  EXPECT_NE(image_of(*other, Split::train, 49999), image);
  EXPECT_NE(image_of(*data, Split::train, 49998), image);
  EXPECT_NE(image_of(*data, Split::test, 5), image_of(*data, Split::train, 5));
  EXPECT_NE(data->provenance(), other->provenance());
}

// Results name this data by seed and version alone, so its bytes may change only with the version.
TEST(SyntheticImages, AreTheSameOnEveryMachine) {
  const auto data = make_synthetic_images(1);
  Bytes bytes;
  for (std::int64_t i = 0; i < 100; ++i) {
    const Bytes image = image_of(*data, Split::train, i);
    bytes.insert(bytes.end(), image.begin(), image.end());
    bytes.push_back(static_cast<std::uint8_t>(data->label(Split::train, i)));
  }
  EXPECT_EQ(data->provenance()["version"], 1);
  EXPECT_EQ(sha256_hex(bytes.data(), bytes.size()),
            "b1dc76249843d798a3f402eb26bdc15dca554604f1d597356522ff04f162aa00");
}

TEST(SyntheticImages, LabelsAreBalancedAndScrambled) {
  const auto data = make_synthetic_images(1);
  for (const Split split : {Split::train, Split::test}) {
    std::array<std::int64_t, 10> count{};
    std::int64_t repeats = 0;
    for (std::int64_t i = 0; i < data->size(split); ++i) {
      ++count[data->label(split, i)];
      if (i > 0) repeats += data->label(split, i) == data->label(split, i - 1);
    }
    for (std::int64_t n : count) EXPECT_EQ(n, data->size(split) / 10);
    EXPECT_NEAR(static_cast<double>(repeats) / data->size(split), 0.1, 0.015);
  }
}

// Nearest class mean of raw pixels is a linear classifier: above the chance of 0.1, far from
// solved.
TEST(SyntheticImages, ALinearGlanceFindsLittle) {
  const auto data = make_synthetic_images(1);
  constexpr int kPixels = 3072, kTrain = 3000, kTest = 1000;
  std::vector<std::array<double, kPixels>> mean(10);
  for (auto& m : mean) m.fill(0);
  std::array<int, 10> count{};
  for (int i = 0; i < kTrain; ++i) ++count[data->label(Split::train, i)];
  for (int i = 0; i < kTrain; ++i) {
    const Bytes image = image_of(*data, Split::train, i);
    const int label = data->label(Split::train, i);
    for (int p = 0; p < kPixels; ++p)
      mean[label][p] += image[p] / static_cast<double>(count[label]);
  }
  int correct = 0;
  for (int i = 0; i < kTest; ++i) {
    const Bytes image = image_of(*data, Split::test, i);
    int nearest = -1;
    double least = 1e300;
    for (int c = 0; c < 10; ++c) {
      double distance = 0;
      for (int p = 0; p < kPixels; ++p)
        distance += (image[p] - mean[c][p]) * (image[p] - mean[c][p]);
      if (distance < least) least = distance, nearest = c;
    }
    correct += nearest == data->label(Split::test, i);
  }
  EXPECT_GT(correct, 0.14 * kTest);
  EXPECT_LT(correct, 0.4 * kTest);
}

// What convolutions can find: the class is the grating's direction and wavelength. Its energy along
// a class's wave, at any phase, tells the class without any training.
TEST(SyntheticImages, TheGratingTellsTheClass) {
  const auto data = make_synthetic_images(1);
  constexpr double kDirections[5][2] = {
      {1, 0}, {0.924, 0.383}, {0.707, 0.707}, {0.383, 0.924}, {0, 1}};
  constexpr double kTurns[2] = {28 / 256.0, 52 / 256.0};  // per pixel
  constexpr int kTest = 300;
  int correct = 0;
  for (int i = 0; i < kTest; ++i) {
    const Bytes image = image_of(*data, Split::test, i);
    double mean[3] = {};
    for (int p = 0; p < 3072; ++p) mean[p % 3] += image[p] / 1024.0;
    int strongest = -1;
    double most = -1;
    for (int c = 0; c < 10; ++c)
      for (const int mirror : {1, -1}) {
        double energy = 0, real[3] = {}, imaginary[3] = {};
        for (int y = 0; y < 32; ++y)
          for (int x = 0; x < 32; ++x) {
            const double angle = 6.283185307 * kTurns[c / 5] *
                                 (mirror * kDirections[c % 5][0] * x + kDirections[c % 5][1] * y);
            const double cosine = std::cos(angle), sine = std::sin(angle);
            for (int k = 0; k < 3; ++k) {
              const double value = image[(y * 32 + x) * 3 + k] - mean[k];
              real[k] += value * cosine;
              imaginary[k] += value * sine;
            }
          }
        for (int k = 0; k < 3; ++k) energy += real[k] * real[k] + imaginary[k] * imaginary[k];
        if (energy > most) most = energy, strongest = c;
      }
    correct += strongest == data->label(Split::test, i);
  }
  EXPECT_GT(correct, 0.9 * kTest);
}

TEST(SyntheticImages, ComeInAnyFormat) {
  const auto data = make_synthetic_images(1, {9, 13, 1, 3}, 30, 7);
  EXPECT_EQ(data->format().bytes(), 9 * 13);
  EXPECT_EQ(data->size(Split::train), 30);
  EXPECT_EQ(data->size(Split::test), 7);
  Bytes image(9 * 13 + 1, 77);
  data->read_image(Split::train, 29, image.data());
  EXPECT_EQ(image.back(), 77);  // not a byte too many
  for (std::int64_t i = 0; i < 7; ++i) EXPECT_LT(data->label(Split::test, i), 3);
  EXPECT_THROW(data->label(Split::test, 7), Error);
  EXPECT_THROW(make_synthetic_images(1, {32, 32, 5, 10}), Error);
  EXPECT_THROW(make_synthetic_images(1, {32, 32, 3, 21}), Error);
  EXPECT_THROW(make_synthetic_images(1, {}, 0), Error);
}

}  // namespace
}  // namespace memfloor

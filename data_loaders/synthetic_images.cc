// A stand-in for CIFAR-10 that needs no download. A class is the orientation and the wavelength of
// a grating that fades with the distance from its centre; place, phase, contrast, colours and
// background are random, and so is every pixel's noise. A linear model finds little more than a
// faint tint of the background; convolutions find the grating. Mirrored gratings belong to one
// class, so that flipping an image keeps its label.
//
// An image is a function of (seed, split, index) in integers only, hence the same on every machine.
#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/philox.h"
#include "data_loaders/image_dataset.h"

namespace memfloor {
namespace {

constexpr int kOrientations = 5;
constexpr int kWavelengths = 4;
constexpr int kMaxChannels = 4;
constexpr int kNoise = 24;  // of a pixel: -24 ... 23

/// What makes one image, its noise apart. Angles are in 1/65536 turn.
struct Look {
  int wave_x, wave_y;  // turn of the grating's angle from one pixel to the next
  int phase;
  int center_x, center_y;
  std::array<int, kMaxChannels> background, amplitude;  // of bytes
};

/// A sine of [-128, 128] made of two parabolas.
int sine(int angle) {
  const int turn = (angle >> 8) & 255, half = turn & 127;
  const int arc = half * (128 - half) / 32;
  return turn & 128 ? -arc : arc;
}

/// Uniform integer in [low, high].
int between(std::uint32_t word, int low, int high) {
  return low + static_cast<int>(uniform_below(word, static_cast<std::uint32_t>(high - low + 1)));
}

class SyntheticImages final : public ImageDataset {
 public:
  SyntheticImages(std::uint32_t seed, ImageFormat format, std::int64_t train_size,
                  std::int64_t test_size)
      : seed_(seed),
        format_(format),
        sizes_{train_size, test_size},
        philox_(seed, Purpose::synthetic_data),
        // Epochs that no run reaches: its order of samples must tell nothing about their labels.
        orders_{Permutation(seed, 0xffffffff, train_size),
                Permutation(seed, 0xfffffffe, test_size)} {
    const auto [height, width, channels, classes] = format;
    MEMFLOOR_CHECK(height > 0 && width > 0 && channels > 0 && channels <= kMaxChannels,
                   "synthetic images have 1 to ", kMaxChannels, " channels and some pixels, not ",
                   height, " x ", width, " x ", channels);
    MEMFLOOR_CHECK(classes > 0 && classes <= kOrientations * kWavelengths,
                   "synthetic images have 1 to ", kOrientations * kWavelengths, " classes, not ",
                   classes);
  }

  ImageFormat format() const override { return format_; }
  std::int64_t size(Split split) const override {
    MEMFLOOR_CHECK(split != Split::valid, "there are no synthetic validation images");
    return sizes_[static_cast<std::size_t>(split)];
  }

  /// Every class equally often, up to one, in an order that looks random.
  int label(Split split, std::int64_t index) const override {
    MEMFLOOR_CHECK(index >= 0 && index < size(split), "there is no image ", index);
    return static_cast<int>(orders_[static_cast<std::size_t>(split)](index) % format_.classes);
  }

  void read_image(Split split, std::int64_t index, std::uint8_t* image) const override {
    const int label = this->label(split, index);
    const auto words = [&](std::uint32_t position) {
      return philox_({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                      static_cast<std::uint32_t>(split), position});
    };
    const Look look = draw_look(label, words);
    for (std::int64_t i = 0; i < format_.bytes(); i += kWordBytes) {
      const auto noise = words(kFirstNoise + static_cast<std::uint32_t>(i / kWordBytes));
      std::memcpy(image + i, &noise, std::min<std::size_t>(kWordBytes, format_.bytes() - i));
    }
    paint(look, image);
  }

  nlohmann::json provenance() const override {
    return {{"name", "synthetic_images"}, {"seed", seed_}, {"version", 1}};
  }

 private:
  static constexpr std::uint32_t kFirstNoise = 16;  // after the positions that draw_look() uses
  static constexpr std::int64_t kWordBytes = sizeof(Philox::Words);

  template <class Words>
  Look draw_look(int label, const Words& words) const {
    constexpr int kDirections[kOrientations][2] = {
        {256, 0}, {237, 98}, {181, 181}, {98, 237}, {0, 256}};  // 0 to 90 degrees, in 1/256
    constexpr int kTurns[kWavelengths] = {28, 52, 76,
                                          100};  // of 9, 5, 3.4 and 2.6 pixels, in 1/256
    const auto& direction = kDirections[label % kOrientations];
    const int turn = kTurns[label / kOrientations];
    const auto wave = words(0), place = words(1);
    Look look;
    look.wave_x = (direction[0] + between(wave[0], -28, 28)) * turn * (wave[2] & 1 ? 1 : -1);
    look.wave_y = (direction[1] + between(wave[1], -28, 28)) * turn;
    look.phase = static_cast<int>(wave[3] & 0xffff);
    look.center_x = between(place[0], format_.width / 4, format_.width * 3 / 4);
    look.center_y = between(place[1], format_.height / 4, format_.height * 3 / 4);
    const int contrast = between(place[2], 48, 96);
    for (int c = 0; c < format_.channels; ++c) {
      const auto colour = words(2 + static_cast<std::uint32_t>(c));
      const int tint = (label * 7 + c * 3) % 10 * 4 - 18;  // the little a linear model can learn
      look.background[c] = 128 + tint + between(colour[0], -32, 32);
      look.amplitude[c] = contrast * between(colour[1], 128, 255) / (colour[2] & 1 ? 256 : -256);
    }
    return look;
  }

  /// Adds the scene to random bytes, which become its noise.
  void paint(const Look& look, std::uint8_t* image) const {
    // The grating's strength falls from 256 at the centre to 0 at the radius, as 1 - (r / R)^2.
    const int radius = std::max(format_.height, format_.width) / 2 + 1;
    const int fall = (256 << 10) / (radius * radius);  // per squared pixel, in 1/1024
    for (int y = 0; y < format_.height; ++y) {
      const int dy = y - look.center_y;
      for (int x = 0; x < format_.width; ++x) {
        const int dx = x - look.center_x;
        const int strength = std::max(0, 256 - ((dx * dx + dy * dy) * fall >> 10));
        const int wave = sine(look.phase + x * look.wave_x + y * look.wave_y) * strength >> 8;
        for (int c = 0; c < format_.channels; ++c, ++image) {
          const int noise = (*image * 2 * kNoise >> 8) - kNoise;
          const int value = look.background[c] + (wave * look.amplitude[c] >> 7) + noise;
          *image = static_cast<std::uint8_t>(std::clamp(value, 0, 255));
        }
      }
    }
  }

  std::uint32_t seed_;
  ImageFormat format_;
  std::array<std::int64_t, 2> sizes_;  // by split
  Philox philox_;
  std::array<Permutation, 2> orders_;  // by split
};

}  // namespace

std::unique_ptr<ImageDataset> make_synthetic_images(std::uint32_t seed, ImageFormat format,
                                                    std::int64_t train_size,
                                                    std::int64_t test_size) {
  return std::make_unique<SyntheticImages>(seed, format, train_size, test_size);
}

}  // namespace memfloor

// Images as vectors of pixels, for kernels that multiply whole vectors of them by one weight.
//
// The lanes are not neighbours: they share a strip out among themselves, a rectangle each, and a
// vector holds the same place of all rectangles. What a tap reads is then another whole vector,
// aligned and a constant distance away, and the border of an image is vectors with some zeros.
#pragma once

#include "backends/cpu/slices.h"
#include "backends/cpu/transpose.h"

namespace memfloor::cpu {

/// `down` rows of `across` rectangles, each of `rows` x `columns` pixels of a grid.
struct LaneShare {
  std::int64_t across = 0, down = 0, rows = 0, columns = 0;

  std::int64_t strip_rows() const { return down * rows; }
  std::int64_t vectors() const { return rows * columns; }
};

/// The largest strips of at most `most_rows` rows a rectangle, a power of two of at least 2, that
/// cut a grid evenly; of no rows where there are none. Rectangles are 4 columns wide, or 2.
inline LaneShare lane_share(std::int64_t grid_rows, std::int64_t grid_columns,
                            std::int64_t most_rows) {
  LaneShare share;
  share.columns = grid_columns >= 32 ? 4 : 2;
  share.across = grid_columns / share.columns;
  if (grid_columns % share.columns != 0 || share.across == 0 || kPart % share.across != 0)
    return {};
  share.down = kPart / share.across;
  for (share.rows = most_rows; share.rows >= 2; share.rows /= 2)
    if (grid_rows % share.strip_rows() == 0) return share;
  return {};
}

/// The vectors that the pixels of a strip read, `step` pixels apart in the image, with a border of
/// `border` pixels around each rectangle.
struct LaneWindow {
  LaneShare share;
  std::int64_t step, border;

  std::int64_t rows() const { return (share.rows - 1) * step + 1 + 2 * border; }
  std::int64_t columns() const { return (share.columns - 1) * step + 1 + 2 * border; }
  /// Floats of a channel.
  std::int64_t channel() const { return rows() * columns() * kPart; }
};

/// An image in memory, NHWC, and its first channel of interest.
template <class T>
struct ImageView {
  const T* pixels;
  std::int64_t height, width, channels;
};

/// The neighbouring rectangle's vector: lane l gets lane l + kBy, or zero at the image's border.
template <int kBy>
[[gnu::always_inline]] inline Part neighbours(Part v, const PartIndices& inside) {
  PartIndices from{};
  for (int lane = 0; lane < kPart; ++lane) from[lane] = (lane + kBy + kPart) % kPart;
#if defined(__clang__)
  Part moved;
  for (int lane = 0; lane < kPart; ++lane) moved[lane] = v[from[lane]];
#else
  const Part moved = __builtin_shuffle(v, from);
#endif
  return reinterpret_cast<Part>(reinterpret_cast<PartIndices>(moved) & inside);
}

/// kChannels channels of what the strip from grid row `first_row` on reads, as vectors:
/// [channel][row][column][lane], channels `stride` floats apart.
template <int kChannels, class T>
void spread_pixels(const LaneWindow& window, const ImageView<T>& image, std::int64_t first_row,
                   float* to, std::int64_t stride) {
  static constexpr T kZeros[kChannels] = {};
  const LaneShare& share = window.share;
  const std::int64_t step = window.step, border = window.border;
  // Of a rectangle, and whether a pixel beyond its right end is read.
  const std::int64_t width = border > 0 ? share.columns * step : window.columns();
  const bool right = window.columns() > width + border;
  PartIndices has_left{}, has_right{};
  for (int lane = 0; lane < kPart; ++lane) {
    has_left[lane] = lane % share.across > 0 ? -1 : 0;
    has_right[lane] = lane % share.across < share.across - 1 ? -1 : 0;
  }
  for (std::int64_t r = 0; r < window.rows(); ++r, to += window.columns() * kPart) {
    const T* from[kPart];
    std::int64_t next[kPart];
    for (int lane = 0; lane < kPart; ++lane) {
      const std::int64_t row = (first_row + lane / share.across * share.rows) * step + r - border;
      const bool inside = row >= 0 && row < image.height;
      const std::int64_t pixel = row * image.width + lane % share.across * share.columns * step;
      from[lane] = inside ? image.pixels + pixel * image.channels : kZeros;
      next[lane] = inside ? image.channels : 0;
    }
    for (std::int64_t c = border; c < border + width; ++c) {
#pragma GCC unroll 2
      for (int first = 0; first < kChannels; first += kPart) {
        Part square[kPart];
#pragma GCC unroll 16
        for (int lane = 0; lane < kPart; ++lane) load_part(from[lane] + first, square[lane]);
        transpose(square);
#pragma GCC unroll 16
        for (int k = 0; k < kPart; ++k)
          store_part(to + (first + k) * stride + c * kPart, square[k]);
      }
      for (int lane = 0; lane < kPart; ++lane) from[lane] += next[lane];
    }
    if (border == 0) continue;
    for (int k = 0; k < kChannels; ++k) {
      float* const row = to + k * stride;
      store_part(row, neighbours<-1>(load_as<Part>(row + width * kPart), has_left));
      if (right)
        store_part(row + (width + 1) * kPart, neighbours<1>(load_as<Part>(row + kPart), has_right));
    }
  }
}

}  // namespace memfloor::cpu

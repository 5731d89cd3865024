// How our convolution kernels walk a batch: in strips of rows whose operands stay in L2 while all
// their products are taken, fetching the next strip meanwhile.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cpu/lanes.h"
#include "backends/cpu/slices.h"

namespace memfloor::cpu {

inline constexpr std::int64_t kStripPixels = kPart == 16 ? 256 : 128;

/// Rows of a grid of pixels (output pixels, or those of dy), which read an image of `in_height`
/// rows: row r those from r * step - 1 to r * step + 1, where they are inside.
struct StripGrid {
  std::int64_t images, rows, columns;
  std::int64_t in_height, step;
  std::int64_t pixels;     // of a strip, about
  std::int64_t first = 0;  // the rows to walk, of every image: [first, last)
  std::int64_t last = rows;

  std::int64_t strip_images() const {
    if (last - first < rows) return 1;
    return std::clamp<std::int64_t>(pixels / (rows * columns), 1, images);
  }
  std::int64_t strip_rows() const {
    return strip_images() > 1 ? rows : std::clamp<std::int64_t>(pixels / columns, 1, rows);
  }
  /// The most rows that a strip reads.
  std::int64_t strip_inputs() const {
    return strip_images() > 1 ? strip_images() * in_height
                              : std::min((strip_rows() - 1) * step + 3, in_height);
  }
};

/// Rows [first, first + rows) of images [image, image + images): whole images, or rows of one.
struct Strip {
  std::int64_t image, images, first, rows;

  /// The rows that it reads, counted through the batch: [begin, end).
  std::int64_t begin(const StripGrid& grid) const {
    return image * grid.in_height + std::max<std::int64_t>(first * grid.step - 1, 0);
  }
  std::int64_t end(const StripGrid& grid) const {
    return (image + images - 1) * grid.in_height +
           std::min((first + rows - 1) * grid.step + 2, grid.in_height);
  }
};

inline Strip first_strip(const StripGrid& grid) {
  return {0, grid.strip_images(), grid.first, std::min(grid.strip_rows(), grid.last - grid.first)};
}

/// The strip after this one; of no rows and images after the last.
inline Strip next_strip(const StripGrid& grid, const Strip& strip) {
  const std::int64_t row = strip.first + strip.rows;
  if (row < grid.last) return {strip.image, 1, row, std::min(grid.strip_rows(), grid.last - row)};
  const std::int64_t image = strip.image + strip.images;
  if (image == grid.images) return {image, 0, 0, 0};
  Strip next = first_strip(grid);
  next.image = image;
  next.images = std::min(next.images, grid.images - image);
  return next;
}

/// Fetches cache lines into L2, a few with every call. Left to the CPU, whose prefetchers don't
/// follow pixels, most tiles of a strip would begin by waiting.
class Prefetch {
 public:
  /// `lines` of them, one every `stride` bytes, over so many calls of advance().
  Prefetch(const void* first, std::int64_t stride, std::int64_t lines, std::int64_t calls)
      : next_(static_cast<const char*>(first)),
        stride_(stride),
        left_(lines),
        share_(ceil_div(lines, calls)) {}

  void advance() {
    for (std::int64_t line = 0; line < share_ && left_ > 0; ++line, --left_, next_ += stride_)
      __builtin_prefetch(next_, 0, 2);
  }

 private:
  const char* next_;
  std::int64_t stride_, left_, share_;
};

/// What advances while a strip is worked on: two operands of the next.
struct NextStrip {
  Prefetch a, b;

  void advance() {
    a.advance();
    b.advance();
  }
};

inline constexpr std::int64_t kLineBytes = 64;

inline void put(float* to, Part sum, bool add) {
  store_part(to, add ? load_as<Part>(to) + sum : sum);
}

}  // namespace memfloor::cpu

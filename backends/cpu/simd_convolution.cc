// Both kernels keep a tile of sums in registers and feed it with broadcasts of one operand times
// vectors of the other.
//
// Forward: taps that fall outside the image are left out instead of padded: a tile knows at compile
// time which of its pixels a border takes away. That saves 4 % of all products at 32x32, 8 % at
// 16x16 and 16 % at 8x8. A tile is 8 (AVX2: 6) pixels of a row x two vectors of output channels.
// Each input channel of a tap costs 2 loads of weights and 8 (6) broadcasts for 16 (12) FMAs; two
// loads and two FMAs start every cycle. Nine taps of 16 input channels are applied at a time, so
// that their weights and three rows of pixels stay in L1; the sums are added to y once per 16 input
// channels.
//
// Weight gradient: a tile is 8 (4) output channels x 3 taps of a kernel row x a vector of input
// channels. Each pixel costs 8 (4) broadcasts of dy and 3 loads of x for 24 (12) FMAs.
//
// Rows of all images are numbered through; work proceeds in strips of rows, about kStripPixels. Of
// the weight gradient's strip, 16 channels of x and of dy are copied into scratch, as FP32 and with
// zeros beside the rows: there they stay in L1, where channels a power of two apart would drive
// each other out. The sums of a strip start at zero and are then added to dw, strip after strip: a
// fixed order, and less rounding than one long sum.
#include "backends/cpu/simd_convolution.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "backends/cpu/lanes.h"
#include "core/error.h"

namespace memfloor::cpu {
namespace {

using Int = std::int64_t;

constexpr int kBlock = kSimdChannels;           // channels that lie together
constexpr Int kBlockWeights = kBlock * kBlock;  // of one tap
constexpr Int kTaps = 9;
constexpr Int kLineBytes = 64;
constexpr int kOutputs = 2 * kPart;               // of a forward tile
constexpr int kWidePixels = kPart == 16 ? 8 : 6;  // of a forward tile: what the registers hold
constexpr int kTileOutputs = kPart / 2;           // of a gradient tile
constexpr Int kStripPixels = kPart == 16 ? 256 : 128;

/// Blocks of 16 x 16 channels hold their nine taps together: [o / 16][i / 16][tap][i % 16][o % 16].
WeightLayout blocked_layout(Int inputs, Int outputs, Dtype dtype) {
  WeightLayout layout;
  layout.dtype = dtype;
  for (Int o = 0; o < outputs; ++o)
    layout.output.push_back(o / kBlock * kTaps * kBlock * inputs + o % kBlock);
  for (Int t = 0; t < kTaps; ++t) layout.tap.push_back(t * kBlockWeights);
  for (Int i = 0; i < inputs; ++i)
    layout.input.push_back(i / kBlock * kTaps * kBlockWeights + i % kBlock * kBlock);
  layout.elements = outputs * kTaps * inputs;
  return layout;
}

void check(const SimdShape& s) {
  MEMFLOOR_CHECK(simd_convolution_serves(s, 3, 1), "no vector kernel for the convolution of ", s.h,
                 " x ", s.w, " images, channels ", s.ci, " to ", s.co,
                 "; ask simd_convolution_serves first");
}

/// Rows [first, first + rows) of the batch.
struct Strip {
  Int first, rows;
};

Int strip_rows(const SimdShape& s) { return std::max<Int>(1, kStripPixels / s.w); }

/// Fetches what the next strip will read or write into L2, a few cache lines with every row of
/// every tile. Left to the CPU, whose prefetchers don't follow pixels, most tiles would begin by
/// waiting.
class Prefetch {
 public:
  /// `lines` of them, one every `stride` bytes, over so many calls of advance().
  Prefetch(const void* first, Int stride, Int lines, Int calls)
      : next_(static_cast<const char*>(first)),
        stride_(stride),
        left_(lines),
        share_((lines + calls - 1) / calls) {}

  void advance() {
    for (Int line = 0; line < share_ && left_ > 0; ++line, --left_, next_ += stride_)
      __builtin_prefetch(next_, 0, 2);
  }

 private:
  const char* next_;
  Int stride_, left_, share_;
};

/// What advances while a strip is worked on.
struct NextStrip {
  Prefetch x, y;  // y: dy, of the weight gradient

  void advance() {
    x.advance();
    y.advance();
  }
};

inline void put(float* to, Part sum, bool add) {
  store_part(to, add ? load_as<Part>(to) + sum : sum);
}

// ---- forward ------------------------------------------------------------------------------------

/// sum[p][v] += x[p][0..15] * weights[v][0..15], for the pixels [kFirst, kLast) of a tile.
template <int kFirst, int kLast, int kPixels, int kVectors>
[[gnu::always_inline]] inline void add_tap(const float* x, Int pixel_stride, const float* weights,
                                           Int block_stride, Part (&sum)[kPixels][kVectors]) {
#pragma GCC unroll 4
  for (int i = 0; i < kBlock; ++i) {
    Part w[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      w[v] = load_as<Part>(weights + v * kPart / kBlock * block_stride + v * kPart % kBlock +
                           i * kBlock);
#pragma GCC unroll 8
    for (int p = kFirst; p < kLast; ++p) {
      const Part value = x[p * pixel_stride + i] - Part{};
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[p][v] += value * w[v];
    }
  }
}

/// Nine taps of 16 input channels, as FP32. Pixels of x are `ci` of the shape apart, of y `stride`;
/// `add`: to what y holds.
struct Block {
  const float* x;        // the strip's first row
  const float* weights;  // those of 16 outputs
  Int weights_stride;    // to the next 16
  float* y;
  Int y_stride;
  bool add;
};

/// A block for kPixels pixels of a row and kVectors vectors of output channels. x, y: the tile's
/// first pixel. `up`, `down`: whether the rows beside it are inside the
/// image; `left`, `right`: whether the columns beside the tile are.
template <int kPixels, int kVectors>
void forward_tile(const SimdShape& s, const Block& block, const float* x, float* y, bool up,
                  bool down, bool left, bool right) {
  Part sum[kPixels][kVectors] = {};
  for (int kh = up ? 0 : 1; kh < (down ? 3 : 2); ++kh)
    for (int kw = 0; kw < 3; ++kw) {
      const float* from = x + ((kh - 1) * s.w + kw - 1) * s.ci;
      const float* tap = block.weights + (3 * kh + kw) * kBlockWeights;
      if (kw == 0 && !left)
        add_tap<1, kPixels>(from, s.ci, tap, block.weights_stride, sum);
      else if (kw == 2 && !right)
        add_tap<0, kPixels - 1>(from, s.ci, tap, block.weights_stride, sum);
      else
        add_tap<0, kPixels>(from, s.ci, tap, block.weights_stride, sum);
    }
#pragma GCC unroll 8
  for (int p = 0; p < kPixels; ++p)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      put(y + p * block.y_stride + v * kPart, sum[p][v], block.add);
}

/// The tiles of a strip's row from column `from`, kPixels wide as long as more than `leave` columns
/// stay.
template <int kPixels, int kVectors>
Int forward_tiles(const SimdShape& s, const Block& block, Int row, Int from, Int leave, bool up,
                  bool down) {
  const float* x = block.x + row * s.w * s.ci;
  float* y = block.y + row * s.w * block.y_stride;
  for (; from + std::max<Int>(kPixels, leave + 1) <= s.w; from += kPixels)
    forward_tile<kPixels, kVectors>(s, block, x + from * s.ci, y + from * block.y_stride, up, down,
                                    from > 0, from + kPixels < s.w);
  return from;
}

/// A block for kPart * kVectors output channels of a strip.
template <int kVectors>
void forward_block(const SimdShape& s, const Strip& strip, const Block& block, NextStrip& next) {
  // Two tiles of 4 keep the multipliers busier than one of 6 and one of 2.
  constexpr Int kLeave = kWidePixels == 6 ? 8 : 0;
  for (Int row = 0; row < strip.rows; ++row) {
    next.advance();
    const Int in_image = (strip.first + row) % s.h;
    const auto tiles = [&]<int kPixels>(Int column, Int leave) {
      return forward_tiles<kPixels, kVectors>(s, block, row, column, leave, in_image > 0,
                                              in_image + 1 < s.h);
    };
    Int column = tiles.template operator()<kWidePixels>(0, kLeave);
    column = tiles.template operator()<4>(column, 0);
    column = tiles.template operator()<2>(column, 0);
    tiles.template operator()<1>(column, 0);
  }
}

/// `count` values, in sixteens, as FP32: where they are, or in `to`.
template <class T>
const float* widened(const T* from, Int count, float* to) {
  if constexpr (std::is_same_v<T, float>) {
    return from;
  } else {
    for (Int i = 0; i < count; i += kLanes) store(to + i, load(from + i));
    return to;
  }
}

/// Scratch of a convolution of 16-bit operands.
struct ForwardScratch {
  Int rows, weights, sums;  // floats of each

  ForwardScratch(const SimdShape& s, Int images)
      : rows(std::min(strip_rows(s) + 2, images * s.h) * s.w * s.ci),
        weights(kOutputs / kBlock * kTaps * kBlockWeights),
        sums(std::min(strip_rows(s), images * s.h) * s.w * kOutputs) {}
};

// ---- weight gradient ----------------------------------------------------------------------------

// Columns unrolled at a time: a loop over them one by one ends in a mispredicted branch for every
// row, a quarter of the time at 8x8.
constexpr int kColumns = 8;
constexpr Int kPieceTiles = Int{3} * (kBlock / kTileOutputs) * (kBlock / kPart);

/// A packed row of x has a column of zeros at either end.
Int packed_row(const SimdShape& s) { return (s.w + 2) * kBlock; }

/// Channels [0, 16) of `pixels` pixels, side by side.
template <class T>
void pack_channels(const T* from, Int pixel_stride, Int pixels, float* to) {
  for (Int p = 0; p < pixels; ++p) store(to + p * kBlock, load(from + p * pixel_stride));
}

/// Sixteen registers hold 12 sums, 3 vectors of x and one broadcast, and no more: GCC must not
/// carry a vector over to the next pixel, which reads it as another tap.
inline void reload([[maybe_unused]] Part& v) {
#if defined(__x86_64__)
  asm volatile("" : "+v"(v));
#endif
}

/// sum[o][kw] += dy[o] * x[kw][0..kPart - 1]; x: the pixel that the first tap reads.
[[gnu::always_inline]] inline void add_pixel(const float* x, const float* dy,
                                             Part (&sum)[kTileOutputs][3]) {
  Part pixel[3];
#pragma GCC unroll 3
  for (int kw = 0; kw < 3; ++kw) {
    pixel[kw] = load_as<Part>(x + kw * kBlock);
    reload(pixel[kw]);
  }
#pragma GCC unroll 8
  for (int o = 0; o < kTileOutputs; ++o) {
    const Part value = dy[o] - Part{};
#pragma GCC unroll 3
    for (int kw = 0; kw < 3; ++kw) sum[o][kw] += value * pixel[kw];
  }
}

/// Taps (kh, *) of a vector of input channels and kTileOutputs output channels, one strip. x, dy:
/// packed, at the strip's first row and the tile's first channel; dw likewise.
void gradient_tile(const SimdShape& s, const Strip& strip, const float* x, const float* dy, int kh,
                   float* dw, NextStrip& next) {
  Part sum[kTileOutputs][3] = {};
  for (Int row = 0; row < strip.rows; ++row) {
    next.advance();
    const Int source = (strip.first + row) % s.h + kh - 1;
    if (source < 0 || source >= s.h) continue;
    const float* from = x + (row + kh - 1) * packed_row(s);
    const float* with = dy + row * s.w * kBlock;
    Int column = 0;
    for (; column + kColumns <= s.w; column += kColumns)
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c, from += kBlock, with += kBlock) add_pixel(from, with, sum);
    for (; column < s.w; ++column, from += kBlock, with += kBlock) add_pixel(from, with, sum);
  }
#pragma GCC unroll 8
  for (int o = 0; o < kTileOutputs; ++o)
#pragma GCC unroll 3
    for (int kw = 0; kw < 3; ++kw)
      put(dw + (o * kTaps + 3 * kh + kw) * s.ci, sum[o][kw], strip.first > 0);
}

}  // namespace

const char* simd_convolution_vectors() {
  return kPart == 16 ? "avx512" : kPart == 8 ? "avx2" : "none";
}

bool simd_convolution_serves(const SimdShape& s, int kernel, int stride) {
  return kPart >= 8 && kernel == 3 && stride == 1 && s.h >= 1 && s.w >= 1 && s.ci >= kBlock &&
         s.co >= kBlock && s.ci % kBlock == 0 && s.co % kBlock == 0;
}

WeightLayout simd_forward_layout(Int ci, Int co, Dtype dtype) {
  return blocked_layout(ci, co, dtype);
}

WeightLayout simd_backward_data_layout(Int ci, Int co, Dtype dtype) {
  WeightLayout layout = blocked_layout(co, ci, dtype);
  std::swap(layout.input, layout.output);
  std::reverse(layout.tap.begin(), layout.tap.end());
  return layout;
}

template <class T>
Int simd_convolution_scratch_bytes(const SimdShape& s, Int images) {
  if (std::is_same_v<T, float>) return 0;
  const ForwardScratch floats(s, images);
  return (floats.rows + floats.weights + floats.sums) * static_cast<Int>(sizeof(float));
}

template <class T>
void simd_convolution(const SimdShape& s, Int images, const T* x, const T* packed, T* y,
                      float* scratch) {
  check(s);
  constexpr bool kInPlace = std::is_same_v<T, float>;
  const ForwardScratch floats(s, images);
  float* const wide_weights = scratch + floats.rows;
  float* const sums = wide_weights + floats.weights;
  const Int rows = images * s.h, step = strip_rows(s);
  const Int row_x = s.w * s.ci, row_y = s.w * s.co, block_weights = kTaps * kBlockWeights;

  for (Int row = 0; row < rows; row += step) {
    const Strip strip{row, std::min(step, rows - row)};
    const Int end = row + strip.rows, pixels = std::min(step, rows - end) * s.w;
    const Int first = std::max<Int>(row - 1, 0), last = std::min(end + 1, rows);
    const float* strip_x =
        widened(x + first * row_x, (last - first) * row_x, scratch) + (row - first) * row_x;

    const Int lines_x = pixels * s.ci * sizeof(T) / kLineBytes;
    const Int lines_y = pixels * s.co * sizeof(T) / kLineBytes;
    const Int calls = strip.rows * (s.ci / kBlock) * ((s.co + kOutputs - 1) / kOutputs);
    NextStrip next{{x + end * row_x, kLineBytes, lines_x, calls},
                   {y + end * row_y, kLineBytes, lines_y, calls}};
    for (Int co = 0; co < s.co; co += kOutputs) {
      const Int outputs = std::min<Int>(kOutputs, s.co - co);
      T* const to = y + row * row_y + co;
      for (Int ci = 0; ci < s.ci; ci += kBlock) {
        const T* weights = packed + co * kTaps * s.ci + ci * kTaps * kBlock;
        Block block{strip_x + ci, nullptr, kTaps * kBlock * s.ci, sums, kOutputs, ci > 0};
        if constexpr (kInPlace) {
          block.weights = weights;
          block.y = to;
          block.y_stride = s.co;
        } else {
          for (Int o = 0; o < outputs / kBlock; ++o)
            widened(weights + o * block.weights_stride, block_weights,
                    wide_weights + o * block_weights);
          block.weights = wide_weights;
          block.weights_stride = block_weights;
        }
        if (outputs == kOutputs)
          forward_block<2>(s, strip, block, next);
        else
          forward_block<1>(s, strip, block, next);
      }
      if constexpr (!kInPlace)
        for (Int p = 0; p < strip.rows * s.w; ++p)
          for (Int o = 0; o < outputs; o += kPart)
            store_part(to + p * s.co + o, load_as<Part>(sums + p * kOutputs + o));
    }
  }
}

Int simd_weight_gradient_scratch_bytes(const SimdShape& s) {
  // Of x a strip and the rows beside it, of dy a strip.
  const Int floats = (strip_rows(s) + 2) * packed_row(s) + strip_rows(s) * s.w * kBlock;
  return floats * static_cast<Int>(sizeof(float));
}

template <class T>
void simd_weight_gradient(const SimdShape& s, Int images, Int co, Int ci, const T* x, const T* dy,
                          float* dw, float* scratch) {
  check(s);
  const Int rows = images * s.h, step = strip_rows(s);
  float* packed_x = scratch + packed_row(s);  // after the row before the strip
  float* packed_dy = packed_x + (step + 1) * packed_row(s);
  std::fill(scratch, packed_dy, 0.0f);
  const auto x_row = [&](Int row) { return x + row * s.w * s.ci + ci; };
  const auto dy_row = [&](Int row) { return dy + row * s.w * s.co + co; };

  for (Int row = 0; row < rows; row += step) {
    const Strip strip{row, std::min(step, rows - row)};
    const Int end = row + strip.rows, pixels = std::min(step, rows - end) * s.w;
    for (Int r = std::max<Int>(row - 1, 0); r < std::min(end + 1, rows); ++r)
      pack_channels(x_row(r), s.ci, s.w, packed_x + (r - row) * packed_row(s) + kBlock);
    pack_channels(dy_row(row), s.co, strip.rows * s.w, packed_dy);

    const Int calls = strip.rows * kPieceTiles, element = sizeof(T);
    NextStrip next{{x_row(end), s.ci * element, pixels, calls},
                   {dy_row(end), s.co * element, pixels, calls}};
    for (int kh = 0; kh < 3; ++kh)
      for (int o = 0; o < kBlock; o += kTileOutputs)
        for (int i = 0; i < kBlock; i += kPart)
          gradient_tile(s, strip, packed_x + i, packed_dy + o, kh,
                        dw + (co + o) * kTaps * s.ci + ci + i, next);
  }
}

template Int simd_convolution_scratch_bytes<float>(const SimdShape&, Int);
template Int simd_convolution_scratch_bytes<Bf16>(const SimdShape&, Int);
template Int simd_convolution_scratch_bytes<F16>(const SimdShape&, Int);
template void simd_convolution(const SimdShape&, Int, const float*, const float*, float*, float*);
template void simd_convolution(const SimdShape&, Int, const Bf16*, const Bf16*, Bf16*, float*);
template void simd_convolution(const SimdShape&, Int, const F16*, const F16*, F16*, float*);

template void simd_weight_gradient(const SimdShape&, Int, Int, Int, const float*, const float*,
                                   float*, float*);
template void simd_weight_gradient(const SimdShape&, Int, Int, Int, const Bf16*, const Bf16*,
                                   float*, float*);
template void simd_weight_gradient(const SimdShape&, Int, Int, Int, const F16*, const F16*, float*,
                                   float*);

}  // namespace memfloor::cpu

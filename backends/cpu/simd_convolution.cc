// Forward and backward-data. A tile of sums, 8 (AVX2: 6) pixels of a row x two vectors of output
// channels, stays in registers. Each input channel of a tap costs 2 loads of weights and 8 (6)
// broadcasts of pixels for 16 (12) FMAs; two loads and two FMAs start every cycle. All taps of 16
// input channels are applied at a time, so that their weights and three rows of pixels stay in L1;
// the sums are added to the result once per 16 input channels.
//
// Taps that fall outside the image are left out instead of padded: a tile knows at compile time
// which of its pixels a border takes away. That saves 4 % of all products at 32x32, 8 % at 16x16
// and 16 % at 8x8.
//
// Of 16-bit activations the rows of a strip are widened into scratch, and the sums of a tile's
// output channels are rounded when they are complete.
#include "backends/cpu/simd_convolution.h"

#include <type_traits>
#include <utility>

#include "backends/cpu/convert.h"
#include "backends/cpu/simd_strips.h"
#include "backends/cpu/tap_sum.h"
#include "core/error.h"

namespace memfloor::cpu {
namespace {

using Int = std::int64_t;

constexpr int kBlock = kSimdChannels;             // channels that lie together
constexpr Int kBlockWeights = kBlock * kBlock;    // of one tap
constexpr int kOutputs = 2 * kPart;               // of a tile
constexpr int kWidePixels = kPart == 16 ? 8 : 6;  // of a tile: what the registers hold

/// All taps of 16 input channels, as FP32. Pixels of x are `ci` apart.
struct Block {
  const float* x;               // the first row that the strip reads
  const float* weights;         // those of 16 outputs
  Int weights_stride;           // to the next 16
  float* y;                     // the phase's first pixel of the strip
  Int y_pixel, y_row, y_image;  // between pixels, rows and images of a phase
  bool add;                     // to what y holds
};

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

/// Where a tile is: row and first column of the grid.
struct Place {
  Int row, column;
};

/// A block for kPixels pixels of a row and kVectors vectors of output channels. x: what the first
/// pixel's central tap reads.
template <int kPixels, int kVectors>
void multiply_tile(const TapSum& s, const Phase& phase, const Block& block, const Place& at,
                   const float* x, float* y) {
  Part sum[kPixels][kVectors] = {};
  const Int row = at.row * s.grid.step, pixel_stride = s.grid.step * s.ci;
  const bool left = at.column > 0;
  const bool right = (at.column + kPixels - 1) * s.grid.step + 1 < s.in_width;
  for (int t = 0; t < phase.taps; ++t) {
    const Tap& tap = phase.tap[t];
    if (row + tap.row < 0 || row + tap.row >= s.grid.in_height) continue;
    const float* from = x + (tap.row * s.in_width + tap.column) * s.ci;
    const float* weights = block.weights + tap.index * kBlockWeights;
    if (tap.column < 0 && !left)
      add_tap<1, kPixels>(from, pixel_stride, weights, block.weights_stride, sum);
    else if (tap.column > 0 && !right)
      add_tap<0, kPixels - 1>(from, pixel_stride, weights, block.weights_stride, sum);
    else
      add_tap<0, kPixels>(from, pixel_stride, weights, block.weights_stride, sum);
  }
#pragma GCC unroll 8
  for (int p = 0; p < kPixels; ++p)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) put(y + p * block.y_pixel + v * kPart, sum[p][v], block.add);
}

/// A block for kPart * kVectors output channels of a phase's pixels in a strip.
template <int kVectors>
void multiply_block(const TapSum& s, const Strip& strip, const Phase& phase, const Block& block,
                    NextStrip& next) {
  // Two tiles of 4 keep the multipliers busier than one of 6 and one of 2.
  constexpr Int kLeave = kWidePixels == 6 ? 8 : 0;
  const Int rows = std::min(strip.rows, phase.rows - strip.first);
  for (Int image = 0; image < strip.images; ++image)
    for (Int row = 0; row < rows; ++row) {
      next.advance();
      const Int in_row =
          (strip.image + image) * s.grid.in_height + (strip.first + row) * s.grid.step;
      const float* x = block.x + (in_row - strip.begin(s.grid)) * s.in_width * s.ci;
      float* y = block.y + image * block.y_image + row * block.y_row;
      Place at{strip.first + row, 0};
      // As long as more than `leave` columns stay.
      const auto tiles = [&]<int kPixels>(Int leave) {
        for (; at.column + std::max<Int>(kPixels, leave + 1) <= phase.columns; at.column += kPixels)
          multiply_tile<kPixels, kVectors>(s, phase, block, at, x + at.column * s.grid.step * s.ci,
                                           y + at.column * block.y_pixel);
      };
      tiles.template operator()<kWidePixels>(kLeave);
      tiles.template operator()<4>(0);
      tiles.template operator()<2>(0);
      tiles.template operator()<1>(0);
    }
}

/// Scratch in floats: none where operands are FP32.
struct Scratch {
  Int rows = 0, sums = 0;

  Scratch(const TapSum& s, bool narrow) {
    if (!narrow) return;
    rows = s.grid.strip_inputs() * s.in_width * s.ci;
    sums = s.grid.strip_images() * s.grid.strip_rows() * s.grid.columns * kOutputs;
  }
};

/// The sums of a phase's pixels in a strip, `outputs` channels of each, into `out` (the batch).
template <class T>
void narrow_sums(const TapSum& s, const Strip& strip, const Phase& phase, const float* sums,
                 Int outputs, T* out) {
  const Int rows = std::min(strip.rows, phase.rows - strip.first);
  for (Int image = 0; image < strip.images; ++image)
    for (Int row = 0; row < rows; ++row) {
      const float* from = sums + (image * s.grid.rows + row) * s.grid.columns * kOutputs;
      const Int out_row =
          (strip.image + image) * s.out_height + (strip.first + row) * s.spread + phase.row;
      T* to = out + (out_row * s.out_width + phase.column) * s.co;
      for (Int column = 0; column < phase.columns; ++column)
        for (Int o = 0; o < outputs; o += kPart)
          store_part(to + column * s.spread * s.co + o,
                     load_as<Part>(from + column * kOutputs + o));
    }
}

/// A phase's pixels in a strip, all channels. x: the first row that the strip reads.
template <class T>
void multiply_phase(const TapSum& s, const Strip& strip, const Phase& phase, const float* x,
                    const float* packed, T* out, float* sums, NextStrip& next) {
  if (strip.first >= phase.rows || phase.columns <= 0) return;
  const Int out_row = strip.image * s.out_height + strip.first * s.spread + phase.row;
  for (Int co = 0; co < s.co; co += kOutputs) {
    const Int outputs = std::min<Int>(kOutputs, s.co - co);
    for (Int ci = 0; ci < s.ci; ci += kBlock) {
      Block block{.x = x + ci,
                  .weights = packed + s.taps * (co * s.ci + ci * kBlock),
                  .weights_stride = s.taps * kBlock * s.ci,
                  .y = sums,
                  .y_pixel = kOutputs,
                  .y_row = s.grid.columns * kOutputs,
                  .y_image = s.grid.rows * s.grid.columns * kOutputs,
                  .add = ci > 0};
      if constexpr (std::is_same_v<T, float>) {
        block.y = out + (out_row * s.out_width + phase.column) * s.co + co;
        block.y_pixel = s.spread * s.co;
        block.y_row = s.spread * s.out_width * s.co;
        block.y_image = s.out_height * s.out_width * s.co;
      }
      if (outputs == kOutputs)
        multiply_block<2>(s, strip, phase, block, next);
      else
        multiply_block<1>(s, strip, phase, block, next);
    }
    if constexpr (!std::is_same_v<T, float>) narrow_sums(s, strip, phase, sums, outputs, out + co);
  }
}

/// What will be read and written in the strip after this one.
template <class T>
NextStrip prefetched(const TapSum& s, const Strip& strip, const Strip& next, const T* in,
                     const T* out) {
  const Int calls =
      strip.images * strip.rows * s.phases * (s.ci / kBlock) * ceil_div(s.co, kOutputs);
  const Int in_row = s.in_width * s.ci, out_row = s.out_width * s.co, size = sizeof(T);
  const Int in_rows = next.images > 0 ? next.end(s.grid) - next.begin(s.grid) : 0;
  const Int out_rows = next.images * next.rows * s.spread;
  return {
      {in + next.begin(s.grid) * in_row, kLineBytes, in_rows * in_row * size / kLineBytes, calls},
      {out + (next.image * s.out_height + next.first * s.spread) * out_row, kLineBytes,
       out_rows * out_row * size / kLineBytes, calls}};
}

}  // namespace

const char* simd_convolution_vectors() {
  return kPart == 16 ? "avx512" : kPart == 8 ? "avx2" : "none";
}

bool simd_convolution_serves(const ConvolutionDescriptor& d) {
  return kPart >= 8 && (d.kernel == 1 || d.kernel == 3) && (d.stride == 1 || d.stride == 2) &&
         d.height >= 1 && d.width >= 1 && d.channels_in >= kBlock && d.channels_out >= kBlock &&
         d.channels_in % kBlock == 0 && d.channels_out % kBlock == 0;
}

/// Blocks of 16 x 16 channels hold their taps together: [o / 16][i / 16][tap][i % 16][o % 16], o
/// being what a pass writes and i what it reads.
WeightLayout simd_weights(const ConvolutionDescriptor& d, SlicePass pass) {
  const bool forward = pass == SlicePass::forward;
  const Int inputs = forward ? d.channels_in : d.channels_out;
  const Int outputs = forward ? d.channels_out : d.channels_in;
  const Int taps = Int{d.kernel} * d.kernel;
  WeightLayout layout;
  layout.elements = outputs * taps * inputs;
  for (Int o = 0; o < outputs; ++o)
    layout.output.push_back(o / kBlock * taps * kBlock * inputs + o % kBlock);
  for (Int t = 0; t < taps; ++t) layout.tap.push_back(t * kBlockWeights);
  for (Int i = 0; i < inputs; ++i)
    layout.input.push_back(i / kBlock * taps * kBlockWeights + i % kBlock * kBlock);
  if (!forward) std::swap(layout.input, layout.output);
  return layout;
}

Int simd_convolution_bands(const ConvolutionDescriptor& d, SlicePass pass) {
  constexpr Int kMost = 4, kLeastRows = 4;
  return std::clamp<Int>(tap_sum(d, pass).grid.rows / kLeastRows, 1, kMost);
}

RowRange simd_band_rows(const ConvolutionDescriptor& d, SlicePass pass, const Band& band) {
  const TapSum s = tap_sum(d, pass);
  const auto until = [&](Int bands) {
    return std::min(s.grid.rows * bands / band.count * s.spread, s.out_height);
  };
  return {until(band.index), until(band.index + 1)};
}

Int simd_convolution_scratch_bytes(const ConvolutionDescriptor& d, SlicePass pass) {
  const Scratch size(tap_sum(d, pass), d.dtype != Dtype::f32);
  return (size.rows + size.sums) * static_cast<Int>(sizeof(float));
}

template <class T>
void simd_convolution(const ConvolutionDescriptor& d, SlicePass pass, const T* in,
                      const float* packed, T* out, float* scratch, const Band& band) {
  MEMFLOOR_CHECK(simd_convolution_serves(d), "no vector kernel for the convolution of ", d.height,
                 " x ", d.width, " images, channels ", d.channels_in, " to ", d.channels_out,
                 "; ask simd_convolution_serves first");
  TapSum s = tap_sum(d, pass);
  s.grid.first = s.grid.rows * band.index / band.count;
  s.grid.last = s.grid.rows * (band.index + 1) / band.count;
  const Scratch size(s, !std::is_same_v<T, float>);
  const Int in_row = s.in_width * s.ci;
  for (Strip strip = first_strip(s.grid); strip.images > 0 && strip.rows > 0;) {
    const Strip next = next_strip(s.grid, strip);
    NextStrip fetch = prefetched(s, strip, next, in, out);
    const Int begin = strip.begin(s.grid), rows = strip.end(s.grid) - begin;
    const float* x = scratch;
    if constexpr (std::is_same_v<T, float>)
      x = in + begin * in_row;
    else
      widen(in + begin * in_row, d.dtype, scratch, rows * in_row);
    for (int p = 0; p < s.phases; ++p)
      multiply_phase(s, strip, s.phase[p], x, packed, out, scratch + size.rows, fetch);
    strip = next;
  }
}

template void simd_convolution(const ConvolutionDescriptor&, SlicePass, const float*, const float*,
                               float*, float*, const Band&);
template void simd_convolution(const ConvolutionDescriptor&, SlicePass, const Bf16*, const float*,
                               Bf16*, float*, const Band&);
template void simd_convolution(const ConvolutionDescriptor&, SlicePass, const F16*, const float*,
                               F16*, float*, const Band&);

}  // namespace memfloor::cpu

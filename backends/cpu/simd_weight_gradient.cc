// The weight gradient of our own convolutions. A tile of sums, 8 (AVX2: 4) output channels x the
// taps of a kernel row x a vector of input channels, stays in registers. Each pixel costs 8 (4)
// broadcasts of dy and 3 loads of x for 24 (12) FMAs.
//
// Of a strip, 16 channels of x and of dy are copied into scratch, as FP32 and with zeros beside the
// rows: there they stay in L1, where channels a power of two apart would drive each other out, and
// columns outside an image need no thought. The sums of a strip start at zero and are then added to
// dw, strip after strip: a fixed order, and less rounding than one long sum.
#include "backends/cpu/simd_convolution.h"
#include "backends/cpu/simd_strips.h"
#include "core/error.h"

namespace memfloor::cpu {
namespace {

using Int = std::int64_t;

constexpr int kBlock = kSimdChannels;
constexpr int kTileOutputs = kPart / 2;
// Columns unrolled at a time: a loop over them one by one ends in a mispredicted branch for every
// row, a quarter of the time at 8x8.
constexpr int kColumns = 8;

StripGrid grid_of(const ConvolutionDescriptor& d) {
  // With stride 2 a strip reads twice the rows of twice the width.
  return {d.images, d.out_height(), d.out_width(), d.height, d.stride, kStripPixels / d.stride};
}

/// A packed row of x has a column of zeros at either end.
Int packed_row(const ConvolutionDescriptor& d) { return (d.width + 2) * kBlock; }

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
template <int kKernel>
[[gnu::always_inline]] inline void add_pixel(const float* x, const float* dy,
                                             Part (&sum)[kTileOutputs][kKernel]) {
  Part pixel[kKernel];
#pragma GCC unroll 3
  for (int kw = 0; kw < kKernel; ++kw) {
    pixel[kw] = load_as<Part>(x + kw * kBlock);
    reload(pixel[kw]);
  }
#pragma GCC unroll 8
  for (int o = 0; o < kTileOutputs; ++o) {
    const Part value = dy[o] - Part{};
#pragma GCC unroll 3
    for (int kw = 0; kw < kKernel; ++kw) sum[o][kw] += value * pixel[kw];
  }
}

/// A strip's x and dy, packed: from the first row that it reads, and from its own first row.
struct PackedStrip {
  const float *x, *dy;
};

/// Taps (kh, *) of a vector of input channels and kTileOutputs output channels, one strip; `strip`
/// and dw begin at the tile's first channels.
template <int kKernel, int kStride>
void gradient_tile(const ConvolutionDescriptor& d, const StripGrid& grid, const Strip& strip,
                   const PackedStrip& packed, int kh, float* dw, bool add, NextStrip& next) {
  constexpr int kPad = kKernel / 2;
  Part sum[kTileOutputs][kKernel] = {};
  for (Int image = 0; image < strip.images; ++image)
    for (Int row = 0; row < strip.rows; ++row) {
      next.advance();
      const Int source = (strip.first + row) * kStride + kh - kPad;
      if (source < 0 || source >= d.height) continue;
      const Int in_row = (strip.image + image) * d.height + source - strip.begin(grid);
      const float* x = packed.x + in_row * packed_row(d) + (1 - kPad) * kBlock;
      const float* dy = packed.dy + (image * grid.rows + row) * grid.columns * kBlock;
      Int column = 0;
      for (; column + kColumns <= grid.columns; column += kColumns)
#pragma GCC unroll 8
        for (int c = 0; c < kColumns; ++c, x += kStride * kBlock, dy += kBlock)
          add_pixel(x, dy, sum);
      for (; column < grid.columns; ++column, x += kStride * kBlock, dy += kBlock)
        add_pixel(x, dy, sum);
    }
#pragma GCC unroll 8
  for (int o = 0; o < kTileOutputs; ++o)
#pragma GCC unroll 3
    for (int kw = 0; kw < kKernel; ++kw)
      put(dw + ((o * kKernel + kh) * kKernel + kw) * d.channels_in, sum[o][kw], add);
}

template <int kKernel, int kStride, class T>
void gradient_piece(const ConvolutionDescriptor& d, Int co, Int ci, const T* x, const T* dy,
                    float* dw, float* scratch) {
  const StripGrid grid = grid_of(d);
  float* const packed_dy = scratch + grid.strip_inputs() * packed_row(d);
  std::fill(scratch, packed_dy, 0.0f);
  const auto x_row = [&](Int row) { return x + row * d.width * d.channels_in + ci; };
  const auto dy_row = [&](const Strip& strip) {
    return dy + (strip.image * grid.rows + strip.first) * grid.columns * d.channels_out + co;
  };
  const auto pixels = [&](const Strip& s) { return s.images * s.rows * grid.columns; };

  bool add = false;
  for (Strip strip = first_strip(grid); strip.images > 0; add = true) {
    const Int begin = strip.begin(grid), end = strip.end(grid);
    for (Int row = begin; row < end; ++row)
      pack_channels(x_row(row), d.channels_in, d.width,
                    scratch + (row - begin) * packed_row(d) + kBlock);
    pack_channels(dy_row(strip), d.channels_out, pixels(strip), packed_dy);

    const Strip next = next_strip(grid, strip);
    const Int calls =
        strip.images * strip.rows * kKernel * (kBlock / kTileOutputs) * (kBlock / kPart);
    const Int size = sizeof(T);
    const Int x_pixels = next.images > 0 ? (next.end(grid) - next.begin(grid)) * d.width : 0;
    NextStrip fetch{{x_row(next.begin(grid)), d.channels_in * size, x_pixels, calls},
                    {dy_row(next), d.channels_out * size, pixels(next), calls}};
    for (int kh = 0; kh < kKernel; ++kh)
      for (int o = 0; o < kBlock; o += kTileOutputs)
        for (int i = 0; i < kBlock; i += kPart)
          gradient_tile<kKernel, kStride>(
              d, grid, strip, {scratch + i, packed_dy + o}, kh,
              dw + (co + o) * kKernel * kKernel * d.channels_in + ci + i, add, fetch);
    strip = next;
  }
}

}  // namespace

Int simd_weight_gradient_scratch_bytes(const ConvolutionDescriptor& d) {
  const StripGrid grid = grid_of(d);
  const Int floats = grid.strip_inputs() * packed_row(d) +
                     grid.strip_images() * grid.strip_rows() * grid.columns * kBlock;
  return floats * static_cast<Int>(sizeof(float));
}

template <class T>
void simd_weight_gradient(const ConvolutionDescriptor& d, Int co, Int ci, const T* x, const T* dy,
                          float* dw, float* scratch) {
  MEMFLOOR_CHECK(simd_convolution_serves(d), "no vector kernel for the weight gradient of ",
                 d.height, " x ", d.width, " images, channels ", d.channels_in, " to ",
                 d.channels_out, "; ask simd_convolution_serves first");
  const auto piece = [&]<int kKernel, int kStride> {
    gradient_piece<kKernel, kStride>(d, co, ci, x, dy, dw, scratch);
  };
  if (d.kernel == 3 && d.stride == 1) return piece.template operator()<3, 1>();
  if (d.kernel == 3) return piece.template operator()<3, 2>();
  if (d.stride == 1) return piece.template operator()<1, 1>();
  return piece.template operator()<1, 2>();
}

template void simd_weight_gradient(const ConvolutionDescriptor&, Int, Int, const float*,
                                   const float*, float*, float*);
template void simd_weight_gradient(const ConvolutionDescriptor&, Int, Int, const Bf16*, const Bf16*,
                                   float*, float*);
template void simd_weight_gradient(const ConvolutionDescriptor&, Int, Int, const F16*, const F16*,
                                   float*, float*);

}  // namespace memfloor::cpu

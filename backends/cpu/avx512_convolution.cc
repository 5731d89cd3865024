// Both kernels keep a tile of sums in registers and feed it with broadcasts of one operand times
// vectors of the other. Taps that fall outside the image are left out instead of padded: a tile
// knows at compile time which of its pixels (or taps) a border takes away. That also saves 4 % of
// all products at 32x32, 8 % at 16x16 and 16 % at 8x8.
//
// Forward: a tile is 8 pixels of a row x 32 output channels, 16 sums. Each input channel of a tap
// costs 2 loads of weights and 8 broadcasts for 16 FMAs; two loads and two FMAs start every cycle.
// Nine taps of 16 input channels (18 KB of weights) are applied at a time, so that they and three
// rows of pixels stay in L1; the sums are added to y once per 16 input channels.
//
// Weight gradient: a tile is 8 output channels x 3 taps of a kernel row x 16 input channels, 24
// sums. Each pixel costs 8 broadcasts of dy and 3 loads of x for 24 FMAs.
//
// Rows of all images are numbered through; work proceeds in strips of rows, about kStripPixels,
// which stay in L2 while all their products are taken. The sums of a strip start at zero and are
// then added to dw, strip after strip: a fixed order, and less rounding than one long sum.
#include "backends/cpu/avx512_convolution.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define MEMFLOOR_AVX512_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
#define MEMFLOOR_AVX512_INLINE inline __attribute__((always_inline)) MEMFLOOR_AVX512_TARGET
#endif

namespace memfloor::cpu {
namespace {

using Int = std::int64_t;

constexpr int kBlock = 16;                      // channels: a vector
constexpr Int kBlockWeights = kBlock * kBlock;  // of one tap
constexpr Int kTaps = 9;

/// Blocks of 16 x 16 channels hold their nine taps together: [o / 16][i / 16][tap][i % 16][o % 16].
WeightLayout blocked_layout(Int inputs, Int outputs) {
  WeightLayout layout;
  for (Int o = 0; o < outputs; ++o)
    layout.output.push_back(o / kBlock * kTaps * kBlock * inputs + o % kBlock);
  for (Int t = 0; t < kTaps; ++t) layout.tap.push_back(t * kBlockWeights);
  for (Int i = 0; i < inputs; ++i)
    layout.input.push_back(i / kBlock * kTaps * kBlockWeights + i % kBlock * kBlock);
  layout.elements = outputs * kTaps * inputs;
  return layout;
}

void check(const Avx512Shape& s) {
  MEMFLOOR_CHECK(avx512_available() && avx512_convolution_supports(s, 3, 1),
                 "no AVX-512 convolution for image ", s.h, " x ", s.w, ", channels ", s.ci, " to ",
                 s.co, " on this CPU; ask avx512_convolution_supports and avx512_available first");
}

#if defined(__x86_64__)

constexpr Int kStripPixels = 256;

/// Rows [first, first + rows) of the batch.
struct Strip {
  Int first, rows;
};

Int strip_rows(const Avx512Shape& s) { return std::max<Int>(1, kStripPixels / s.w); }

MEMFLOOR_AVX512_INLINE void put(float* to, __m512 sum, bool add) {
  _mm512_storeu_ps(to, add ? _mm512_add_ps(_mm512_loadu_ps(to), sum) : sum);
}

// ---- forward ------------------------------------------------------------------------------------

/// sum[p][v] += x[p][0..15] * weights[v][0..15], for the pixels [kFirst, kLast) of a tile.
template <int kFirst, int kLast, int kPixels, int kVectors>
MEMFLOOR_AVX512_INLINE void add_tap(const float* x, Int pixel_stride, const float* weights,
                                    Int vector_stride, __m512 (&sum)[kPixels][kVectors]) {
#pragma GCC unroll 4
  for (int i = 0; i < kBlock; ++i) {
    __m512 w[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      w[v] = _mm512_loadu_ps(weights + v * vector_stride + i * kBlock);
#pragma GCC unroll 8
    for (int p = kFirst; p < kLast; ++p) {
      const __m512 value = _mm512_set1_ps(x[p * pixel_stride + i]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[p][v] = _mm512_fmadd_ps(value, w[v], sum[p][v]);
    }
  }
}

/// Nine taps of 16 input channels for kPixels pixels of a row and 16 * kVectors output channels.
/// x, y: the tile's first pixel. `up`, `down`: whether the rows beside it are inside the image;
/// `left`, `right`: whether the columns beside the tile are.
template <int kPixels, int kVectors>
MEMFLOOR_AVX512_TARGET void forward_tile(const Avx512Shape& s, const float* x, const float* weights,
                                         float* y, bool up, bool down, bool left, bool right,
                                         bool add) {
  const Int vector_stride = kTaps * kBlock * s.ci;
  __m512 sum[kPixels][kVectors] = {};
  for (int kh = up ? 0 : 1; kh < (down ? 3 : 2); ++kh)
    for (int kw = 0; kw < 3; ++kw) {
      const float* from = x + ((kh - 1) * s.w + kw - 1) * s.ci;
      const float* tap = weights + (3 * kh + kw) * kBlockWeights;
      if (kw == 0 && !left)
        add_tap<1, kPixels>(from, s.ci, tap, vector_stride, sum);
      else if (kw == 2 && !right)
        add_tap<0, kPixels - 1>(from, s.ci, tap, vector_stride, sum);
      else
        add_tap<0, kPixels>(from, s.ci, tap, vector_stride, sum);
    }
#pragma GCC unroll 8
  for (int p = 0; p < kPixels; ++p)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) put(y + p * s.co + v * kBlock, sum[p][v], add);
}

/// The tiles of one row from column `from`, kPixels wide as long as they fit.
template <int kPixels, int kVectors>
Int forward_tiles(const Avx512Shape& s, Int from, const float* x, const float* weights, float* y,
                  bool up, bool down, bool add) {
  for (; from + kPixels <= s.w; from += kPixels)
    forward_tile<kPixels, kVectors>(s, x + from * s.ci, weights, y + from * s.co, up, down,
                                    from > 0, from + kPixels < s.w, add);
  return from;
}

/// Nine taps of input channels [ci, ci + 16) to output channels [co, co + 16 * kVectors).
template <int kVectors>
void forward_block(const Avx512Shape& s, const Strip& strip, Int ci, Int co, const float* x,
                   const float* packed, float* y) {
  const float* weights = packed + co * kTaps * s.ci + ci * kTaps * kBlock;
  for (Int row = strip.first; row < strip.first + strip.rows; ++row) {
    const float* from = x + row * s.w * s.ci + ci;
    float* to = y + row * s.w * s.co + co;
    const bool up = row % s.h > 0, down = row % s.h + 1 < s.h, add = ci > 0;
    Int column = forward_tiles<8, kVectors>(s, 0, from, weights, to, up, down, add);
    column = forward_tiles<4, kVectors>(s, column, from, weights, to, up, down, add);
    column = forward_tiles<2, kVectors>(s, column, from, weights, to, up, down, add);
    forward_tiles<1, kVectors>(s, column, from, weights, to, up, down, add);
  }
}

// ---- weight gradient ----------------------------------------------------------------------------

constexpr int kTileOutputs = 8;
constexpr int kBlockTiles = 3 * kBlock / kTileOutputs;  // of 16 input channels of a group
// Columns unrolled at a time. Rows of 8, 16 and 32 have 6, 14 and 30 inner columns; a loop over
// them one by one ends in a mispredicted branch for every row, a quarter of the time at 8x8.
constexpr int kColumns = 6;

/// All input channels, 16 output channels: where theirs begin in dy and dw.
struct GradientGroup {
  const float *x, *dy;
  float* dw;
};

/// Fetches the next strip of a group little by little into L2; left to the CPU, a strip would be
/// waited for in its first tile.
class Prefetch {
 public:
  /// x, dy: where the next strip begins; it has `pixels`.
  Prefetch(const Avx512Shape& s, const float* x, const float* dy, Int pixels)
      : x_(x), dy_(dy), lines_(s.ci / kBlock), co_(s.co), pixels_(pixels) {}

  /// One row's share: called for every row of every tile, it keeps ahead of the strip.
  void advance(Int w) {
    for (Int count = (w + kBlockTiles - 1) / kBlockTiles; count > 0 && pixels_ > 0; --count) {
      __builtin_prefetch(x_, 0, 2);
      x_ += kBlock;
      if (++line_ < lines_) continue;
      __builtin_prefetch(dy_, 0, 2);
      dy_ += co_;
      line_ = 0;
      --pixels_;
    }
  }

 private:
  const float *x_, *dy_;
  Int lines_, co_;  // of 16 channels of x, a pixel
  Int pixels_;
  Int line_ = 0;
};

/// sum[o][kw] += dy[o] * x[kw - 1][0..15], for the taps [kFirst, kLast). x, dy: the output's pixel.
template <int kFirst, int kLast>
MEMFLOOR_AVX512_INLINE void add_pixel(const float* x, Int ci, const float* dy,
                                      __m512 (&sum)[kTileOutputs][3]) {
  __m512 pixel[3];
#pragma GCC unroll 3
  for (int kw = kFirst; kw < kLast; ++kw) pixel[kw] = _mm512_loadu_ps(x + (kw - 1) * ci);
#pragma GCC unroll 8
  for (int o = 0; o < kTileOutputs; ++o) {
    const __m512 value = _mm512_set1_ps(dy[o]);
#pragma GCC unroll 3
    for (int kw = kFirst; kw < kLast; ++kw)
      sum[o][kw] = _mm512_fmadd_ps(value, pixel[kw], sum[o][kw]);
  }
}

/// One row of x (its row oy + kh - 1) and of dy.
MEMFLOOR_AVX512_INLINE void add_row(const Avx512Shape& s, const float* x, const float* dy,
                                    __m512 (&sum)[kTileOutputs][3]) {
  if (s.w == 1) return add_pixel<1, 2>(x, s.ci, dy, sum);
  add_pixel<1, 3>(x, s.ci, dy, sum);
  Int inner = s.w - 2;
  for (; inner >= kColumns; inner -= kColumns)
#pragma GCC unroll 6
    for (int column = 0; column < kColumns; ++column)
      add_pixel<0, 3>(x += s.ci, s.ci, dy += s.co, sum);
  for (; inner > 0; --inner) add_pixel<0, 3>(x += s.ci, s.ci, dy += s.co, sum);
  add_pixel<0, 2>(x + s.ci, s.ci, dy + s.co, sum);
}

/// Input channels [ci, ci + 16), taps (kh, *), output channels [o, o + 8) of a group, one strip.
MEMFLOOR_AVX512_TARGET void gradient_tile(const Avx512Shape& s, const Strip& strip,
                                          const GradientGroup& group, Int ci, int kh, int o,
                                          Prefetch& next) {
  __m512 sum[kTileOutputs][3] = {};
  for (Int row = strip.first; row < strip.first + strip.rows; ++row) {
    next.advance(s.w);
    const Int source = row % s.h + kh - 1;
    if (source < 0 || source >= s.h) continue;
    add_row(s, group.x + (row + kh - 1) * s.w * s.ci + ci, group.dy + row * s.w * s.co + o, sum);
  }
  float* dw = group.dw + (o * kTaps + 3 * kh) * s.ci + ci;
#pragma GCC unroll 8
  for (int i = 0; i < kTileOutputs; ++i)
#pragma GCC unroll 3
    for (int kw = 0; kw < 3; ++kw) put(dw + (i * kTaps + kw) * s.ci, sum[i][kw], strip.first > 0);
}

/// A group over the whole batch.
void gradient_group(const Avx512Shape& s, Int rows, const GradientGroup& group) {
  const Int step = strip_rows(s);
  for (Int row = 0; row < rows; row += step) {
    const Strip strip{row, std::min(step, rows - row)};
    const Int end = row + strip.rows;
    Prefetch next(s, group.x + end * s.w * s.ci, group.dy + end * s.w * s.co,
                  std::min(step, rows - end) * s.w);
    for (Int ci = 0; ci < s.ci; ci += kBlock)
      for (int kh = 0; kh < 3; ++kh)
        for (int o = 0; o < kBlock; o += kTileOutputs)
          gradient_tile(s, strip, group, ci, kh, o, next);
  }
}

#endif

}  // namespace

bool avx512_convolution_supports(const Avx512Shape& s, int kernel, int stride) {
  return kernel == 3 && stride == 1 && s.h >= 1 && s.w >= 1 && s.ci >= kBlock && s.co >= kBlock &&
         s.ci % kBlock == 0 && s.co % kBlock == 0;
}

WeightLayout avx512_forward_layout(Int ci, Int co) { return blocked_layout(ci, co); }

WeightLayout avx512_backward_data_layout(Int ci, Int co) {
  WeightLayout layout = blocked_layout(co, ci);
  std::swap(layout.input, layout.output);
  std::reverse(layout.tap.begin(), layout.tap.end());
  return layout;
}

#if defined(__x86_64__)

bool avx512_available() {
  static const bool available = __builtin_cpu_supports("avx512f") &&
                                __builtin_cpu_supports("avx512bw") &&
                                __builtin_cpu_supports("avx512dq") &&
                                __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
  return available;
}

void avx512_convolution(const Avx512Shape& s, Int images, const float* x, const float* packed,
                        float* y) {
  check(s);
  const Int rows = images * s.h, step = strip_rows(s);
  for (Int row = 0; row < rows; row += step) {
    const Strip strip{row, std::min(step, rows - row)};
    Int co = 0;
    for (; co + 2 * kBlock <= s.co; co += 2 * kBlock)
      for (Int ci = 0; ci < s.ci; ci += kBlock) forward_block<2>(s, strip, ci, co, x, packed, y);
    if (co < s.co)
      for (Int ci = 0; ci < s.ci; ci += kBlock) forward_block<1>(s, strip, ci, co, x, packed, y);
  }
}

void avx512_weight_gradient(const Avx512Shape& s, Int images, const float* x, const float* dy,
                            float* dw, ThreadPool& pool) {
  check(s);
  // Slices of whole channels need no partial sums, but are only co / 16.
  pool.parallel_for(s.co / kBlock, [&](Int index, int) {
    const Int co = index * kBlock;
    gradient_group(s, images * s.h, {x, dy + co, dw + co * kTaps * s.ci});
  });
}

#else

bool avx512_available() { return false; }
void avx512_convolution(const Avx512Shape& s, Int, const float*, const float*, float*) { check(s); }
void avx512_weight_gradient(const Avx512Shape& s, Int, const float*, const float*, float*,
                            ThreadPool&) {
  check(s);
}

#endif

}  // namespace memfloor::cpu

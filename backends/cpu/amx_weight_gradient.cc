// How the gradient becomes tile products. One AMX product adds A (16 x 32) * B (32 x 16) to C
// (16 x 16); B wants its 32 rows in pairs, [pair][16][2]. The long sum runs over output pixels, so
// A = dY transposed, B = X shifted by the tap, C = 16 co x 16 ci of one tap: 64-byte runs of dw.
//
// The trick: the two members of a pair are the same pixel of two *images*. A shift by a tap then
// moves whole pairs, so X is packed once, zero padded, and every tap reads it at another 64-byte
// aligned offset:
//   packed X   [ci tile][packed row][column plane][column][image pair][16 ci][2 images]
//   packed dY  [co tile][k block][16 co][16 x (column, image pair)][2 images]
// Images narrower than 16 fill a k block (16 pairs) with several image pairs. Stride 2 splits
// columns into an even and an odd plane, so that consecutive outputs stay consecutive.
//
// A chunk (a few rows of a few images, kTargetBlocks k blocks) is packed, then all taps and channel
// tiles are multiplied while it is in the L1 and L2 caches. A slice is a range of chunks times a
// range of co tiles, with its own sums; slices depend on the shape only, and their sums are added
// in a fixed order.
#include "backends/cpu/amx_weight_gradient.h"

#include <algorithm>
#include <cstdlib>

#include "core/error.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#define MEMFLOOR_AMX 1
#define MEMFLOOR_AMX_TARGET \
  __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl")))
#else
#define MEMFLOOR_AMX 0
#endif

namespace memfloor::cpu {
namespace {

constexpr int kTile = 16;  // channels, and pairs of a k block
constexpr std::int64_t kTileBytes = 1024;
constexpr int kTargetBlocks = 32;  // k blocks of a chunk: less means more traffic of sums
constexpr int kMaxColumns = 32;    // of a chunk: bounds scratch for wide images
constexpr int kBatchSlices = 4;
constexpr std::int64_t kSumsBytes = 256 << 10;    // that slices of the batch may add to scratch
constexpr std::int64_t kPackedBytes = 400 << 10;  // of a thread, where chunks can be cut

int ceil_div(int a, int b) { return (a + b - 1) / b; }

/// Everything that follows from the shape.
struct Plan {
  WeightGradientShape shape;
  int out_h, out_w, pad;
  int step, gap;      // packed rows (columns) per output row; input rows per packed row
  int rows, columns;  // output pixels of a chunk
  int pairs;          // image pairs of a chunk
  int row_blocks;     // k blocks per output row
  int plane_columns;  // packed columns of one plane
  int groups, row_strips, column_strips;  // chunks of the batch
  int ci_tiles, co_tiles, taps_x_tiles;   // columns of C, in tiles
  int batch_slices, co_slices, slice_co_tiles;
  bool exact;  // channels fill their tiles: the first slice sums straight into dw

  explicit Plan(const WeightGradientShape& s) : shape(s), out_h(s.out_h()), out_w(s.out_w()) {
    MEMFLOOR_CHECK((s.k == 1 || s.k == 3) && (s.stride == 1 || s.stride == 2) && s.n >= 1 &&
                       s.h >= 1 && s.w >= 1 && s.ci >= 1 && s.co >= 1,
                   "no AMX weight gradient for k ", s.k, ", stride ", s.stride, ", batch ", s.n,
                   ", image ", s.h, " x ", s.w, ", channels ", s.ci, " to ", s.co);
    pad = s.k / 2;
    step = s.k == 1 ? 1 : s.stride;  // a 1x1 kernel packs only the pixels that it meets
    gap = s.stride / step;
    column_strips = ceil_div(out_w, kMaxColumns);
    columns = ceil_div(out_w, column_strips);
    plane_columns = columns + (s.k - 1) / step;
    const int all_pairs = ceil_div(s.n, 2);
    // Enough image pairs for full k blocks and half a chunk; then as many as waste least.
    const auto blocks_of = [&](int q) { return ceil_div(columns * q, kTile); };
    int least = std::min(std::max(1, kTile / columns), all_pairs);
    while (out_h * blocks_of(least) < kTargetBlocks / 2 && 2 * least <= all_pairs) least *= 2;
    pairs = least;
    for (int q = least + 1; q < 2 * least && out_h * blocks_of(q) <= kTargetBlocks; ++q)
      if (ceil_div(all_pairs, q) * blocks_of(q) < ceil_div(all_pairs, pairs) * blocks_of(pairs))
        pairs = q;
    row_blocks = blocks_of(pairs);
    groups = ceil_div(all_pairs, pairs);
    ci_tiles = ceil_div(s.ci, kTile);
    co_tiles = ceil_div(s.co, kTile);
    taps_x_tiles = s.k * s.k * ci_tiles;
    exact = s.ci % kTile == 0 && s.co % kTile == 0;
    set_rows(ceil_div(out_h, std::max(1, kTargetBlocks / row_blocks)));
    // Slices of the batch cost sums; slices of the channels pack X twice: only one or the other.
    const bool slice_batch = sums_bytes() <= kSumsBytes && chunks() > 1;
    slice_co_tiles = slice_batch ? co_tiles : ceil_div(co_tiles, 4) * 2;
    co_slices = ceil_div(co_tiles, slice_co_tiles);
    while (rows > 1 && rows * row_blocks >= kTargetBlocks / 2 && thread_bytes() > kPackedBytes)
      set_rows(2 * row_strips);
    batch_slices = static_cast<int>(
        std::min<std::int64_t>({kBatchSlices, chunks(), 1 + kSumsBytes / sums_bytes()}));
  }

  void set_rows(int strips) {
    rows = ceil_div(out_h, strips);
    row_strips = ceil_div(out_h, rows);
  }
  std::int64_t chunks() const {
    return static_cast<std::int64_t>(groups) * row_strips * column_strips;
  }
  std::int64_t row_floats() const { return static_cast<std::int64_t>(taps_x_tiles) * kTile; }
  std::int64_t sums_bytes() const {  // (co, k, k, ci), channels rounded up to tiles
    return co_tiles * kTile * row_floats() * 4;
  }
  int packed_rows(int output_rows) const { return (output_rows - 1) * step + shape.k; }
  std::int64_t packed_row_bytes() const {
    return static_cast<std::int64_t>(step) * plane_columns * pairs * 64;
  }
  // A k block that is not full reads beyond its pixels, up to one tile, and multiplies by zero.
  std::int64_t packed_x_bytes() const {
    return ci_tiles * packed_rows(rows) * packed_row_bytes() + kTileBytes;
  }
  std::int64_t packed_dy_bytes() const {
    return static_cast<std::int64_t>(slice_co_tiles) * rows * row_blocks * kTileBytes;
  }
  std::int64_t thread_bytes() const { return packed_x_bytes() + packed_dy_bytes(); }
  std::int64_t scratch_sums() const { return batch_slices - (exact ? 1 : 0); }
};

#if MEMFLOOR_AMX

bool request_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (std::getenv("MEMFLOOR_NO_AMX") || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  const bool amx = (d >> 22 & 1) && (d >> 24 & 1);  // bf16, tile
  const bool avx512 = (b >> 16 & 1) && (b >> 17 & 1) && (b >> 30 & 1) && (b >> 31 & 1);
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
  return amx && avx512 && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// The compiler does not know that tile instructions touch memory.
inline void memory_fence() { asm volatile("" ::: "memory"); }

/// The mask of min(16, count) channels.
inline __mmask16 first_channels(int count) {
  return static_cast<__mmask16>(count >= kTile ? 0xffff : (1 << count) - 1);
}

/// 2 * pairs images from `image`, output rows [y0, y0 + rows), columns from x0.
struct Chunk {
  int image, y0, rows, x0;
};

Chunk chunk_at(const Plan& p, std::int64_t index) {
  const int x = static_cast<int>(index % p.column_strips);
  const int y = static_cast<int>(index / p.column_strips % p.row_strips);
  const int group = static_cast<int>(index / p.column_strips / p.row_strips);
  const int y0 = y * p.rows;
  return {2 * p.pairs * group, y0, std::min(p.rows, p.out_h - y0), x * p.columns};
}

/// The sixteen pairs of pixels of a k block: element offsets, and bit 2 * pair + image of `valid`
/// for those inside the output; the others count as zero.
struct Block {
  std::int64_t offset[2][kTile];
  std::uint32_t valid;
};

/// Blocks of the first output row of a chunk; other rows follow at a constant distance.
void locate(const Plan& p, const Chunk& chunk, Block* blocks) {
  const WeightGradientShape& s = p.shape;
  for (int r = 0; r < p.row_blocks * kTile; ++r) {
    const int column = r / p.pairs, x = chunk.x0 + column;
    Block& block = blocks[r / kTile];
    if (r % kTile == 0) block.valid = 0;
    for (int i = 0; i < 2; ++i) {
      const int image = chunk.image + r % p.pairs * 2 + i;
      const bool inside = image < s.n && column < p.columns && x < p.out_w;
      const std::int64_t row = static_cast<std::int64_t>(image) * p.out_h + chunk.y0;
      block.offset[i][r % kTile] = inside ? (row * p.out_w + x) * s.co : 0;
      block.valid |= static_cast<std::uint32_t>(inside) << (2 * (r % kTile) + i);
    }
  }
}

/// Sixteen pairs of pixels by 16 channels -> 16 channels by 16 pairs.
MEMFLOOR_AMX_TARGET inline void transpose(const Bf16* dy, const Block& block, char* tile) {
  // Lane l of pixels[half][i][j]: 8 channels of pair 4l + j, image i. Loads do the wide moves.
  __m512i pixels[2][2][4];
#pragma GCC unroll 4
  for (int i = 0; i < 2; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m128i* from[4];
#pragma GCC unroll 4
      for (int l = 0; l < 4; ++l)
        from[l] = reinterpret_cast<const __m128i*>(dy + block.offset[i][4 * l + j]);
#pragma GCC unroll 4
      for (int half = 0; half < 2; ++half) {
        __m512i v = _mm512_castsi128_si512(_mm_loadu_si128(from[0] + half));
        v = _mm512_mask_broadcast_i32x4(v, 0x00f0, _mm_loadu_si128(from[1] + half));
        v = _mm512_mask_broadcast_i32x4(v, 0x0f00, _mm_loadu_si128(from[2] + half));
        v = _mm512_mask_broadcast_i32x4(v, 0xf000, _mm_loadu_si128(from[3] + half));
        pixels[half][i][j] = v;
      }
    }
#pragma GCC unroll 4
  for (int half = 0; half < 2; ++half)
#pragma GCC unroll 4
    for (int quarter = 0; quarter < 2; ++quarter) {
      __m512i p[4];  // lane l of p[j]: 4 channels of pair 4l + j, both images
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j)
        p[j] = quarter == 0 ? _mm512_unpacklo_epi16(pixels[half][0][j], pixels[half][1][j])
                            : _mm512_unpackhi_epi16(pixels[half][0][j], pixels[half][1][j]);
      const __m512i a = _mm512_unpacklo_epi32(p[0], p[1]), b = _mm512_unpackhi_epi32(p[0], p[1]);
      const __m512i c = _mm512_unpacklo_epi32(p[2], p[3]), d = _mm512_unpackhi_epi32(p[2], p[3]);
      const __m512i channels[4] = {_mm512_unpacklo_epi64(a, c), _mm512_unpackhi_epi64(a, c),
                                   _mm512_unpacklo_epi64(b, d), _mm512_unpackhi_epi64(b, d)};
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i)
        _mm512_store_si512(tile + 64 * (8 * half + 4 * quarter + i),
                           _mm512_maskz_mov_epi16(block.valid, channels[i]));
    }
}

/// The same for fewer than 16 channels, which a transpose must not read beyond.
MEMFLOOR_AMX_TARGET void transpose_some(const Bf16* dy, const Block& block, int channels,
                                        char* tile) {
  Bf16 copy[2][kTile][kTile] = {};
  Block inside{{}, block.valid};
  for (int i = 0; i < 2; ++i)
    for (int r = 0; r < kTile; ++r) {
      inside.offset[i][r] = (i * kTile + r) * kTile;
      for (int c = 0; c < channels; ++c) copy[i][r][c] = dy[block.offset[i][r] + c];
    }
  transpose(copy[0][0], inside, tile);
}

/// dY of a chunk, co tiles [tile0, tile0 + tiles) -> [co tile][k block][16 co][16 pairs][2].
MEMFLOOR_AMX_TARGET void pack_dy(const Plan& p, const Chunk& chunk, int tile0, int tiles,
                                 const Bf16* dy, char* packed) {
  const int co = p.shape.co;
  const std::int64_t tile_bytes = chunk.rows * p.row_blocks * kTileBytes;
  Block blocks[kTargetBlocks];
  locate(p, chunk, blocks);
  for (int y = 0; y < chunk.rows; ++y, dy += static_cast<std::int64_t>(p.out_w) * co)
    for (int b = 0; b < p.row_blocks; ++b, packed += kTileBytes)
      for (int t = 0; t < tiles; ++t) {
        const int channel = (tile0 + t) * kTile;
        if (channel + kTile <= co)
          transpose(dy + channel, blocks[b], packed + t * tile_bytes);
        else
          transpose_some(dy + channel, blocks[b], co - channel, packed + t * tile_bytes);
      }
}

/// Two images of a row of pixels -> [column][16 ci][2], `to_step` bytes a column.
MEMFLOOR_AMX_TARGET inline void interleave(const Bf16* from, const Bf16* from2, __mmask16 mask,
                                           __mmask16 mask2, std::int64_t step, int columns,
                                           char* to, std::int64_t to_step) {
  for (int c = 0; c < columns; ++c, from += step, from2 += step, to += to_step) {
    const __m512i a = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from));
    const __m512i b = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask2, from2));
    _mm512_store_si512(to, _mm512_or_si512(a, _mm512_slli_epi32(b, 16)));
  }
}

/// X of a chunk, zero outside the image -> [ci tile][row][plane][column][image pair][16 ci][2].
MEMFLOOR_AMX_TARGET void pack_x(const Plan& p, const Chunk& chunk, const Bf16* x, char* packed) {
  const WeightGradientShape& s = p.shape;
  const int packed_rows = p.packed_rows(chunk.rows);
  const std::int64_t tile_bytes = packed_rows * p.packed_row_bytes();
  const std::int64_t image_size = static_cast<std::int64_t>(s.h) * s.w * s.ci;
  const std::int64_t column_bytes = p.pairs * 64;
  for (int r = 0; r < packed_rows; ++r)
    for (int plane = 0; plane < p.step; ++plane, packed += p.plane_columns * column_bytes) {
      const int row = chunk.y0 * s.stride + r * p.gap - p.pad;
      const int column = chunk.x0 * s.stride + plane * p.gap - p.pad;  // of the first one
      int left = column < 0 ? 1 : 0;  // columns [left, right) are inside the image; pad <= 1
      int right = std::min(ceil_div(std::max(0, s.w - column), s.stride), p.plane_columns);
      if (row < 0 || row >= s.h) left = right = 0;
      const std::int64_t offset =
          (static_cast<std::int64_t>(row) * s.w + column + left * s.stride) * s.ci;
      for (int pair = 0; pair < p.pairs; ++pair) {
        const int image = chunk.image + 2 * pair;
        const Bf16* from = x + std::min(image, s.n - 1) * image_size + offset;
        const Bf16* from2 = x + std::min(image + 1, s.n - 1) * image_size + offset;
        for (int t = 0; t < p.ci_tiles; ++t) {
          const __mmask16 mask = first_channels(s.ci - t * kTile);
          char* const to = packed + t * tile_bytes + pair * 64;
          for (int c = 0; c < left; ++c)
            _mm512_store_si512(to + c * column_bytes, _mm512_setzero_si512());
          interleave(from + t * kTile, from2 + t * kTile, image < s.n ? mask : 0,
                     image + 1 < s.n ? mask : 0, s.stride * s.ci, right - left,
                     to + left * column_bytes, column_bytes);
          for (int c = std::max(left, right); c < p.plane_columns; ++c)
            _mm512_store_si512(to + c * column_bytes, _mm512_setzero_si512());
        }
      }
    }
  packed += (p.ci_tiles - 1) * tile_bytes;
  for (int i = 0; i < kTile; ++i) _mm512_store_si512(packed + 64 * i, _mm512_setzero_si512());
}

/// Extents of a product of up to two tiles of A by two of B over all k blocks of a chunk.
struct Product {
  int rows, row_blocks;
  std::int64_t a_tile_bytes, b_row_bytes, c_row_bytes;
};

/// c[i][j] += sum over k of a[i] * b[j]; with `first`, c starts from zero.
template <int kA, int kB>
MEMFLOOR_AMX_TARGET void multiply(const Product& p, const char* a, const char* b0, const char* b1,
                                  char* c0, char* c1, bool first) {
  const std::int64_t c_tile_bytes = kTile * p.c_row_bytes;
  if (first) {
    _tile_zero(0);
    if constexpr (kB == 2) _tile_zero(1);
    if constexpr (kA == 2) _tile_zero(2);
    if constexpr (kA == 2 && kB == 2) _tile_zero(3);
  } else {
    _tile_loadd(0, c0, p.c_row_bytes);
    if constexpr (kB == 2) _tile_loadd(1, c1, p.c_row_bytes);
    if constexpr (kA == 2) _tile_loadd(2, c0 + c_tile_bytes, p.c_row_bytes);
    if constexpr (kA == 2 && kB == 2) _tile_loadd(3, c1 + c_tile_bytes, p.c_row_bytes);
  }
  for (int row = 0; row < p.rows; ++row, b0 += p.b_row_bytes, b1 += p.b_row_bytes)
    for (int block = 0; block < p.row_blocks; ++block, a += kTileBytes) {
      _tile_loadd(4, a, 64);
      _tile_loadd(6, b0 + block * kTileBytes, 64);
      _tile_dpbf16ps(0, 4, 6);
      if constexpr (kB == 2) {
        _tile_loadd(7, b1 + block * kTileBytes, 64);
        _tile_dpbf16ps(1, 4, 7);
      }
      if constexpr (kA == 2) {
        _tile_loadd(5, a + p.a_tile_bytes, 64);
        _tile_dpbf16ps(2, 5, 6);
        if constexpr (kB == 2) _tile_dpbf16ps(3, 5, 7);
      }
    }
  _tile_stored(0, c0, p.c_row_bytes);
  if constexpr (kB == 2) _tile_stored(1, c1, p.c_row_bytes);
  if constexpr (kA == 2) _tile_stored(2, c0 + c_tile_bytes, p.c_row_bytes);
  if constexpr (kA == 2 && kB == 2) _tile_stored(3, c1 + c_tile_bytes, p.c_row_bytes);
}

/// Adds a packed chunk to sums[co][kh][kw][ci].
void multiply_chunk(const Plan& p, const Chunk& chunk, int tiles, const char* packed_x,
                    const char* packed_dy, float* sums, bool first) {
  const std::int64_t row_bytes = p.packed_row_bytes();
  const std::int64_t x_tile_bytes = p.packed_rows(chunk.rows) * row_bytes;
  const Product product{chunk.rows, p.row_blocks, chunk.rows * p.row_blocks * kTileBytes,
                        p.step * row_bytes, p.row_floats() * 4};
  // Neighbours in this order are mostly two taps of one ci tile: they read nearly the same lines.
  struct Column {
    const char* b;
    char* c;
  };
  const auto column_at = [&](int column) {
    const int taps = p.shape.k * p.shape.k, tap = column % taps, ci_tile = column / taps;
    const int kh = tap / p.shape.k, kw = tap % p.shape.k;
    const int packed_column = kw % p.step * p.plane_columns + kw / p.step;
    return Column{packed_x + ci_tile * x_tile_bytes + kh * row_bytes + packed_column * p.pairs * 64,
                  reinterpret_cast<char*>(sums + (tap * p.ci_tiles + ci_tile) * kTile)};
  };
  for (int t = 0; t < tiles; t += 2)
    for (int column = 0; column < p.taps_x_tiles; column += 2) {
      const bool two_a = t + 1 < tiles, two_b = column + 1 < p.taps_x_tiles;
      const Column one = column_at(column), two = column_at(two_b ? column + 1 : column);
      const auto run = two_a ? (two_b ? multiply<2, 2> : multiply<2, 1>)
                             : (two_b ? multiply<1, 2> : multiply<1, 1>);
      const std::int64_t c_offset = t * kTile * product.c_row_bytes;
      run(product, packed_dy + t * product.a_tile_bytes, one.b, two.b, one.c + c_offset,
          two.c + c_offset, first);
    }
}

struct alignas(64) TileConfig {  // palette 1: eight tiles of 16 rows x 64 bytes
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileConfig kTileConfig;

MEMFLOOR_AMX_TARGET void run_slice(const Plan& p, int batch_slice, int co_slice, const Bf16* x,
                                   const Bf16* dy, float* sums, char* packed_x) {
  const int tile0 = co_slice * p.slice_co_tiles;
  const int tiles = std::min(p.slice_co_tiles, p.co_tiles - tile0);
  char* packed_dy = packed_x + p.packed_x_bytes();
  const std::int64_t begin = p.chunks() * batch_slice / p.batch_slices;
  const std::int64_t end = p.chunks() * (batch_slice + 1) / p.batch_slices;
  _tile_loadconfig(&kTileConfig);  // other libraries leave theirs behind
  for (std::int64_t i = begin; i < end; ++i) {
    const Chunk chunk = chunk_at(p, i);
    pack_x(p, chunk, x, packed_x);
    pack_dy(p, chunk, tile0, tiles, dy, packed_dy);
    memory_fence();
    multiply_chunk(p, chunk, tiles, packed_x, packed_dy, sums + tile0 * kTile * p.row_floats(),
                   i == begin);
    memory_fence();
  }
  _tile_release();
}

/// Row `co` of dw = sum of the slices' rows, without the padding of ci.
MEMFLOOR_AMX_TARGET void add_row(const Plan& p, const float* const* sums, std::int64_t co,
                                 float* dw) {
  const int ci = p.shape.ci, taps = p.shape.k * p.shape.k;
  for (int tap = 0; tap < taps; ++tap) {
    const std::int64_t from =
        co * p.row_floats() + static_cast<std::int64_t>(tap) * p.ci_tiles * kTile;
    float* to = dw + (co * taps + tap) * ci;
    for (int i = 0; i < ci; i += kTile) {
      const __mmask16 mask = first_channels(ci - i);
      __m512 sum = _mm512_loadu_ps(sums[0] + from + i);
      for (int s = 1; s < p.batch_slices; ++s)
        sum = _mm512_add_ps(sum, _mm512_loadu_ps(sums[s] + from + i));
      _mm512_mask_storeu_ps(to + i, mask, sum);
    }
  }
}

#endif

}  // namespace

bool amx_available() {
#if MEMFLOOR_AMX
  static const bool available = request_amx();
  return available;
#else
  return false;
#endif
}

std::int64_t amx_weight_gradient_scratch_bytes(const WeightGradientShape& shape, int threads) {
  const Plan p(shape);
  return p.scratch_sums() * p.sums_bytes() + threads * p.thread_bytes();
}

void amx_weight_gradient([[maybe_unused]] const WeightGradientShape& shape,
                         [[maybe_unused]] const Bf16* x, [[maybe_unused]] const Bf16* dy,
                         [[maybe_unused]] float* dw, [[maybe_unused]] void* scratch,
                         [[maybe_unused]] ThreadPool& pool) {
  MEMFLOOR_CHECK(amx_available(), "this machine has no AMX bf16: use another weight gradient");
#if MEMFLOOR_AMX
  const Plan p(shape);
  char* const bytes = static_cast<char*>(scratch);
  float* sums[kBatchSlices];
  for (int s = 0, own = 0; s < p.batch_slices; ++s)
    sums[s] = s == 0 && p.exact ? dw : reinterpret_cast<float*>(bytes + own++ * p.sums_bytes());
  char* const packed = bytes + p.scratch_sums() * p.sums_bytes();
  pool.parallel_for(p.batch_slices * p.co_slices, [&](std::int64_t slice, int thread) {
    const int s = static_cast<int>(slice) / p.co_slices, c = static_cast<int>(slice) % p.co_slices;
    run_slice(p, s, c, x, dy, sums[s], packed + thread * p.thread_bytes());
  });
  if (p.batch_slices == 1 && p.exact) return;
  pool.parallel_for(shape.co, [&](std::int64_t co, int) { add_row(p, sums, co, dw); });
#endif
}

}  // namespace memfloor::cpu

// A non-zero weight is broadcast and multiplies pixels, so a vector holds pixels of one channel.
// Not neighbours: the lanes share an image out among themselves, a small rectangle each, and a
// vector holds the same place of all rectangles. What a tap reads is then another whole vector,
// aligned and a constant distance away, and the border of an image is vectors with some zeros.
//
// 16 input channels of a strip of rows are spread into such vectors at a time; they stay in L1. A
// tile of 8 vectors of sums stays in registers while the non-zeros between these channels and one
// output are walked, tap by tap: a broadcast and 8 FMAs each, whose other operand is in memory. The
// sums are added to the output's once per 16 input channels, in the order of simd_convolution.cc.
#include "backends/cpu/sparse_convolution.h"

#include "backends/cpu/simd_convolution.h"
#include "backends/cpu/tap_sum.h"
#include "backends/cpu/transpose.h"
#include "core/error.h"

namespace memfloor::cpu {
namespace {

using Int = std::int64_t;

constexpr int kBlock = kSimdChannels;
constexpr int kTileVectors = 8;

/// How the lanes share out a strip: `down` rows of `across` rectangles, each of `rows` x `columns`
/// pixels of the grid. A tile is some of the rows of every rectangle.
struct Share {
  Int across = 0, down = 0, rows = 0, columns = 0, tile_rows = 0;
  Int in_rows = 0, in_columns = 0;  // of what a rectangle reads, a pixel around it included

  Int strip_rows() const { return down * rows; }
  Int vectors() const { return rows * columns; }
  Int channel() const { return in_rows * in_columns * kPart; }  // floats
};

/// Of no rows where vectors don't divide the images.
Share share_of(const StripGrid& grid) {
  constexpr Int kMostRows = 4;  // more would not stay in L1
  Share share;
  share.columns = grid.columns >= 32 ? 4 : 2;
  share.across = grid.columns / share.columns;
  if (grid.columns % share.columns != 0 || share.across == 0 || kPart % share.across != 0)
    return {};
  share.down = kPart / share.across;
  if (grid.rows % (2 * share.down) != 0) return {};
  share.rows = grid.rows % (kMostRows * share.down) == 0 ? kMostRows : 2;
  share.tile_rows = std::min(share.rows, kTileVectors / share.columns);
  share.in_rows = (share.rows - 1) * grid.step + 3;
  share.in_columns = (share.columns - 1) * grid.step + 3;
  return share;
}

Int strips(const StripGrid& grid) { return grid.rows / share_of(grid).strip_rows(); }

/// Scratch in floats: what a strip reads of 16 channels, and its sums, of so many outputs at a
/// time.
struct Scratch {
  Int pixels, sums, outputs;

  Scratch(const TapSum& s, const Share& share) : pixels(kBlock * share.channel()) {
    constexpr Int kMostSums = 512 * kPart, kLeastOutputs = 32;
    const Int output = s.phases * share.vectors() * kPart;
    outputs = std::min(s.co, std::max(kMostSums / output / kBlock * kBlock, kLeastOutputs));
    sums = outputs * output;
  }
};

/// A strip of an image: its first row in the grid.
struct StripStart {
  Int image, row;
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

/// Channels [0, 16) of what a strip reads, as vectors: [channel][row][column][lane].
template <class T>
void spread_pixels(const TapSum& s, const Share& share, const StripStart& strip, const T* in,
                   float* to) {
  static constexpr T kZeros[kBlock] = {};
  const Int step = s.grid.step, width = share.columns * step;  // of a rectangle, in pixels read
  const bool right = share.in_columns > width + 1;             // whether one beyond it is read
  PartIndices has_left{}, has_right{};
  for (int lane = 0; lane < kPart; ++lane) {
    has_left[lane] = lane % share.across > 0 ? -1 : 0;
    has_right[lane] = lane % share.across < share.across - 1 ? -1 : 0;
  }
  for (Int r = 0; r < share.in_rows; ++r, to += share.in_columns * kPart) {
    const T* from[kPart];
    Int next[kPart];
    for (int lane = 0; lane < kPart; ++lane) {
      const Int row = (strip.row + lane / share.across * share.rows) * step + r - 1;
      const bool inside = row >= 0 && row < s.grid.in_height;
      const Int pixel = (strip.image * s.grid.in_height + row) * s.in_width;
      from[lane] = inside ? in + (pixel + lane % share.across * width) * s.ci : kZeros;
      next[lane] = inside ? s.ci : 0;
    }
    for (Int c = 1; c <= width; ++c) {
#pragma GCC unroll 2
      for (int first = 0; first < kBlock; first += kPart) {
        Part square[kPart];
#pragma GCC unroll 16
        for (int lane = 0; lane < kPart; ++lane) load_part(from[lane] + first, square[lane]);
        transpose(square);
#pragma GCC unroll 16
        for (int k = 0; k < kPart; ++k)
          store_part(to + (first + k) * share.channel() + c * kPart, square[k]);
      }
      for (int lane = 0; lane < kPart; ++lane) from[lane] += next[lane];
    }
    for (int k = 0; k < kBlock; ++k) {
      float* const row = to + k * share.channel();
      store_part(row, neighbours<-1>(load_as<Part>(row + width * kPart), has_left));
      if (right)
        store_part(row + (width + 1) * kPart, neighbours<1>(load_as<Part>(row + kPart), has_right));
    }
  }
}

/// The sums of a phase, [output][row][column][lane], into outputs [0, outputs) of `out` (the
/// batch).
template <class T>
void gather_sums(const TapSum& s, const Share& share, const StripStart& strip, const Phase& phase,
                 const float* sums, Int outputs, T* out) {
  const Int output = share.vectors() * kPart;
  for (Int r = 0; r < share.rows; ++r) {
    T* to[kPart];
    for (int lane = 0; lane < kPart; ++lane) {
      const Int grid_row = strip.row + lane / share.across * share.rows + r;
      const Int row = strip.image * s.out_height + grid_row * s.spread + phase.row;
      const Int column = lane % share.across * share.columns * s.spread + phase.column;
      to[lane] = out + (row * s.out_width + column) * s.co;
    }
    for (Int c = 0; c < share.columns; ++c, sums += kPart) {
      for (Int o = 0; o < outputs; o += kPart) {
        Part square[kPart];
#pragma GCC unroll 16
        for (int k = 0; k < kPart; ++k) square[k] = load_as<Part>(sums + (o + k) * output);
        transpose(square);
#pragma GCC unroll 16
        for (int lane = 0; lane < kPart; ++lane) store_part(to[lane] + o, square[lane]);
      }
      for (int lane = 0; lane < kPart; ++lane) to[lane] += s.spread * s.co;
    }
  }
}

/// A tile's sums over non-zeros [first, last), into y or added to it.
template <int kRows, int kColumns, int kStep>
void add_non_zeros(const NonZero* first, const NonZero* last, const float* x, float* y, bool add) {
  constexpr Int kInRow = ((kColumns - 1) * kStep + 3) * kPart;
  Part sum[kRows][kColumns] = {};
  for (; first != last; ++first) {
    const Part weight = first->value - Part{};
    const float* from = x + first->offset;
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c)
        sum[r][c] += weight * load_as<Part>(from + r * kStep * kInRow + c * kStep * kPart);
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) put(y + (r * kColumns + c) * kPart, sum[r][c], add);
}

/// A block of 16 input channels in a strip.
struct Block {
  const std::uint32_t* cells;  // where those of the first output begin
  const NonZero* entries;
  const float* pixels;
  float* sums;  // [phase][output][row][column][lane]
  Int outputs;
  bool add;  // to what `sums` holds
};

template <int kRows, int kColumns, int kStep>
void multiply_block(const TapSum& s, const Share& share, const Block& block) {
  const Int output = share.vectors() * kPart;
  const std::uint32_t* cell = block.cells;
  for (Int o = 0; o < block.outputs; ++o)
    for (int p = 0; p < s.phases; ++p) {
      const NonZero* const first = block.entries + *cell;
      cell += s.phase[p].taps;
      const NonZero* const last = block.entries + *cell;
      const float* pixels = block.pixels;
      float* sums = block.sums + (p * block.outputs + o) * output;
      for (Int row = 0; row < share.rows; row += kRows) {
        add_non_zeros<kRows, kColumns, kStep>(first, last, pixels, sums, block.add);
        pixels += kRows * kStep * share.in_columns * kPart;
        sums += kRows * kColumns * kPart;
      }
    }
}

/// In the tiles of a share.
void multiply(const TapSum& s, const Share& share, const Block& block) {
  const auto with_step = [&]<int kRows, int kColumns> {
    if (s.grid.step == 1)
      multiply_block<kRows, kColumns, 1>(s, share, block);
    else
      multiply_block<kRows, kColumns, 2>(s, share, block);
  };
  if (share.columns == 4)
    with_step.template operator()<2, 4>();
  else if (share.tile_rows == 4)
    with_step.template operator()<4, 2>();
  else
    with_step.template operator()<2, 2>();
}

/// What a band does of every image: some of its strips or, where it is one, some of the outputs, of
/// which 16 share a line of memory.
struct BandShare {
  Int first_strip, last_strip, first_output, last_output;
};

BandShare share_of_band(const TapSum& s, const Band& band) {
  const Int all = strips(s.grid), lines = s.co / kBlock;
  const auto cut = [&](Int whole, Int index) { return whole * index / band.count; };
  if (all > 1) return {cut(all, band.index), cut(all, band.index + 1), 0, s.co};
  return {0, 1, kBlock * cut(lines, band.index), kBlock * cut(lines, band.index + 1)};
}

}  // namespace

bool sparse_convolution_serves(const ConvolutionDescriptor& d, SlicePass pass) {
  if (!simd_convolution_serves(d) || d.kernel != 3) return false;
  return d.height % d.stride == 0 && d.width % d.stride == 0 &&
         share_of(tap_sum(d, pass).grid).rows > 0;
}

/// Cells [i / 16][o][tap], o being what a pass writes and i what it reads, the taps phase by phase.
NonZeroLayout sparse_convolution_layout(const ConvolutionDescriptor& d, SlicePass pass) {
  const TapSum s = tap_sum(d, pass);
  const Share share = share_of(s.grid);
  NonZeroLayout layout;
  layout.cells = s.ci / kBlock * s.co * s.taps;
  layout.cell.tap.resize(static_cast<std::size_t>(s.taps));
  layout.offset.tap.resize(static_cast<std::size_t>(s.taps));
  Int place = 0;
  for (int p = 0; p < s.phases; ++p)
    for (int t = 0; t < s.phase[p].taps; ++t) {
      const Tap& tap = s.phase[p].tap[t];
      layout.cell.tap[tap.index] = place++;
      layout.offset.tap[tap.index] = ((tap.row + 1) * share.in_columns + tap.column + 1) * kPart;
    }
  for (Int o = 0; o < s.co; ++o) {
    layout.cell.output.push_back(o * s.taps);
    layout.offset.output.push_back(0);
  }
  for (Int i = 0; i < s.ci; ++i) {
    layout.cell.input.push_back(i / kBlock * s.co * s.taps);
    layout.offset.input.push_back(i % kBlock * share.channel());
  }
  if (pass == SlicePass::backward_data) {
    std::swap(layout.cell.output, layout.cell.input);
    std::swap(layout.offset.output, layout.offset.input);
  }
  return layout;
}

Int sparse_convolution_bands(const ConvolutionDescriptor& d, SlicePass pass) {
  constexpr Int kMostRows = 4, kMostOutputs = 2;
  const TapSum s = tap_sum(d, pass);
  const Int all = strips(s.grid);
  return all > 1 ? std::min(all, kMostRows) : std::min(s.co / kBlock, kMostOutputs);
}

Region sparse_band_region(const ConvolutionDescriptor& d, SlicePass pass, const Band& band) {
  const TapSum s = tap_sum(d, pass);
  const BandShare mine = share_of_band(s, band);
  const Int rows = share_of(s.grid).strip_rows() * s.spread;
  return {mine.first_strip * rows, mine.last_strip * rows, mine.first_output, mine.last_output};
}

Int sparse_convolution_scratch_bytes(const ConvolutionDescriptor& d, SlicePass pass) {
  const TapSum s = tap_sum(d, pass);
  const Scratch size(s, share_of(s.grid));
  return (size.pixels + size.sums) * static_cast<Int>(sizeof(float));
}

template <class T>
void sparse_convolution(const ConvolutionDescriptor& d, SlicePass pass, const T* in,
                        const NonZeroLayout& layout, const void* packed, T* out, float* scratch,
                        const Band& band) {
  MEMFLOOR_CHECK(sparse_convolution_serves(d, pass), "no sparse kernel for the convolution of ",
                 d.height, " x ", d.width, " images, channels ", d.channels_in, " to ",
                 d.channels_out, "; ask sparse_convolution_serves first");
  const TapSum s = tap_sum(d, pass);
  const Share share = share_of(s.grid);
  const BandShare mine = share_of_band(s, band);
  const Scratch size(s, share);
  const auto do_strip = [&](const StripStart& strip, Int first, Int outputs) {
    Block block{.cells = layout.starts(packed) + first * s.taps,
                .entries = layout.entries(packed),
                .pixels = scratch,
                .sums = scratch + size.pixels,
                .outputs = outputs,
                .add = false};
    for (Int ci = 0; ci < s.ci; ci += kBlock, block.cells += s.co * s.taps, block.add = true) {
      spread_pixels(s, share, strip, in + ci, scratch);
      multiply(s, share, block);
    }
    for (int p = 0; p < s.phases; ++p)
      gather_sums(s, share, strip, s.phase[p], block.sums + p * outputs * share.vectors() * kPart,
                  outputs, out + first);
  };
  for (Int image = 0; image < d.images; ++image)
    for (Int strip = mine.first_strip; strip < mine.last_strip; ++strip)
      for (Int o = mine.first_output; o < mine.last_output; o += size.outputs)
        do_strip({image, strip * share.strip_rows()}, o,
                 std::min(size.outputs, mine.last_output - o));
}

template void sparse_convolution(const ConvolutionDescriptor&, SlicePass, const float*,
                                 const NonZeroLayout&, const void*, float*, float*, const Band&);
template void sparse_convolution(const ConvolutionDescriptor&, SlicePass, const Bf16*,
                                 const NonZeroLayout&, const void*, Bf16*, float*, const Band&);
template void sparse_convolution(const ConvolutionDescriptor&, SlicePass, const F16*,
                                 const NonZeroLayout&, const void*, F16*, float*, const Band&);

}  // namespace memfloor::cpu

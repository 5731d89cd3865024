// A non-zero weight is broadcast and multiplies pixels, 8 or 16 of one channel at a time (see
// lane_strips.h). 16 input channels of a strip are spread into vectors of pixels at a time; they
// stay in L1. A tile of 8 vectors of sums stays in registers while the non-zeros between these
// channels and one output are walked, tap by tap: a broadcast and 8 FMAs each, whose other operand
// is in memory. The sums are added to the output's once per 16 input channels, in the order of
// simd_convolution.cc.
#include "backends/cpu/sparse_convolution.h"

#include "backends/cpu/lane_strips.h"
#include "backends/cpu/simd_convolution.h"
#include "backends/cpu/tap_sum.h"
#include "core/error.h"

namespace memfloor::cpu {
namespace {

using Int = std::int64_t;

constexpr int kBlock = kSimdChannels;

/// More would not stay in L1.
constexpr Int kMostRows = 4;

LaneShare share_of(const StripGrid& grid) { return lane_share(grid.rows, grid.columns, kMostRows); }
LaneWindow window_of(const TapSum& s) { return {share_of(s.grid), s.grid.step, 1}; }
Int strips(const StripGrid& grid) { return grid.rows / share_of(grid).strip_rows(); }

/// Scratch in floats: what a strip reads of 16 channels, and its sums, of so many outputs at a
/// time.
struct Scratch {
  Int pixels, sums, outputs;

  explicit Scratch(const TapSum& s) : pixels(kBlock * window_of(s).channel()) {
    constexpr Int kMostSums = 512 * kPart, kLeastOutputs = 32;
    const Int output = s.phases * share_of(s.grid).vectors() * kPart;
    outputs = std::min(s.co, std::max(kMostSums / output / kBlock * kBlock, kLeastOutputs));
    sums = outputs * output;
  }
};

/// A strip of an image: its first row in the grid.
struct StripStart {
  Int image, row;
};

/// The sums of a phase, [output][row][column][lane], into outputs [0, outputs) of `out` (the
/// batch).
template <class T>
void gather_sums(const TapSum& s, const LaneShare& share, const StripStart& strip,
                 const Phase& phase, const float* sums, Int outputs, T* out) {
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
void multiply_block(const TapSum& s, const LaneWindow& window, const Block& block) {
  const Int output = window.share.vectors() * kPart;
  const std::uint32_t* cell = block.cells;
  for (Int o = 0; o < block.outputs; ++o)
    for (int p = 0; p < s.phases; ++p) {
      const NonZero* const first = block.entries + *cell;
      cell += s.phase[p].taps;
      const NonZero* const last = block.entries + *cell;
      const float* pixels = block.pixels;
      float* sums = block.sums + (p * block.outputs + o) * output;
      for (Int row = 0; row < window.share.rows; row += kRows) {
        add_non_zeros<kRows, kColumns, kStep>(first, last, pixels, sums, block.add);
        pixels += kRows * kStep * window.columns() * kPart;
        sums += kRows * kColumns * kPart;
      }
    }
}

/// In tiles of 8 vectors, where the rectangles have that many.
void multiply(const TapSum& s, const LaneWindow& window, const Block& block) {
  const auto with_step = [&]<int kRows, int kColumns> {
    if (window.step == 1)
      multiply_block<kRows, kColumns, 1>(s, window, block);
    else
      multiply_block<kRows, kColumns, 2>(s, window, block);
  };
  if (window.share.columns == 4)
    with_step.template operator()<2, 4>();
  else if (window.share.rows == 4)
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
  const LaneWindow window = window_of(s);
  NonZeroLayout layout;
  layout.cells = s.ci / kBlock * s.co * s.taps;
  layout.cell.tap.resize(static_cast<std::size_t>(s.taps));
  layout.offset.tap.resize(static_cast<std::size_t>(s.taps));
  Int place = 0;
  for (int p = 0; p < s.phases; ++p)
    for (int t = 0; t < s.phase[p].taps; ++t) {
      const Tap& tap = s.phase[p].tap[t];
      layout.cell.tap[tap.index] = place++;
      layout.offset.tap[tap.index] = ((tap.row + 1) * window.columns() + tap.column + 1) * kPart;
    }
  for (Int o = 0; o < s.co; ++o) {
    layout.cell.output.push_back(o * s.taps);
    layout.offset.output.push_back(0);
  }
  for (Int i = 0; i < s.ci; ++i) {
    layout.cell.input.push_back(i / kBlock * s.co * s.taps);
    layout.offset.input.push_back(i % kBlock * window.channel());
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
  const Scratch size(s);
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
  const LaneWindow window = window_of(s);
  const LaneShare& share = window.share;
  const BandShare mine = share_of_band(s, band);
  const Scratch size(s);
  const auto do_strip = [&](const StripStart& strip, Int first, Int outputs) {
    Block block{.cells = layout.starts(packed) + first * s.taps,
                .entries = layout.entries(packed),
                .pixels = scratch,
                .sums = scratch + size.pixels,
                .outputs = outputs,
                .add = false};
    const T* const image = in + strip.image * s.grid.in_height * s.in_width * s.ci;
    for (Int ci = 0; ci < s.ci; ci += kBlock, block.cells += s.co * s.taps, block.add = true) {
      spread_pixels<kBlock>(window, ImageView<T>{image + ci, s.grid.in_height, s.in_width, s.ci},
                            strip.row, scratch, window.channel());
      multiply(s, window, block);
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

#include "backends/cpu/tap_sum.h"

namespace memfloor::cpu {
namespace {

using Int = std::int64_t;

TapSum forward_sum(const ConvolutionDescriptor& d) {
  const Int rows = d.out_height(), columns = d.out_width();
  TapSum sum{.grid = {d.images, rows, columns, d.height, d.stride, kStripPixels},
             .in_width = d.width,
             .out_height = rows,
             .out_width = columns,
             .ci = d.channels_in,
             .co = d.channels_out,
             .spread = 1,
             .taps = d.kernel * d.kernel,
             .phases = 1,
             .phase = {{.rows = rows, .columns = columns, .row = 0, .column = 0, .tap = {}}}};
  Phase& phase = sum.phase[0];
  for (int t = 0; t < sum.taps; ++t)
    phase.tap[phase.taps++] = {t / d.kernel - d.kernel / 2, t % d.kernel - d.kernel / 2, t};
  return sum;
}

/// Pixel i of dx reads the pixels (i + pad - k) / stride of dy, for the k for which they exist.
TapSum backward_sum(const ConvolutionDescriptor& d) {
  TapSum sum{.grid = {d.images, d.out_height(), d.out_width(), d.out_height(), 1, kStripPixels},
             .in_width = d.out_width(),
             .out_height = d.height,
             .out_width = d.width,
             .ci = d.channels_out,
             .co = d.channels_in,
             .spread = d.stride,
             .taps = d.kernel * d.kernel,
             .phase = {}};
  const Int pad = d.kernel / 2;
  for (Int row = 0; row < d.stride; ++row)
    for (Int column = 0; column < d.stride; ++column) {
      Phase& phase = sum.phase[sum.phases++];
      phase = {.rows = ceil_div(d.height - row, d.stride),
               .columns = ceil_div(d.width - column, d.stride),
               .row = row,
               .column = column,
               .tap = {}};
      for (int t = sum.taps - 1; t >= 0; --t) {
        const Int down = row + pad - t / d.kernel, right = column + pad - t % d.kernel;
        if (down % d.stride == 0 && right % d.stride == 0)
          phase.tap[phase.taps++] = {down / d.stride, right / d.stride, t};
      }
    }
  return sum;
}

}  // namespace

TapSum tap_sum(const ConvolutionDescriptor& d, SlicePass pass) {
  return pass == SlicePass::forward ? forward_sum(d) : backward_sum(d);
}

}  // namespace memfloor::cpu

// Convolutions in FP32 arithmetic, kernels 1x1 and 3x3, strides 1 and 2: NHWC activations, channels
// in sixteens, operands stored as T = float, Bf16 or F16 (the descriptor's). For processors with
// vectors of at least 8 floats; the others, and the other shapes, are oneDNN's.
//
// In FP32 they read operands where they are. Of 16-bit operands a strip of rows at a time is
// widened into scratch, some ten kB of it, whatever the size of the batch.
#pragma once

#include "backends/cpu/convolution_kernels.h"

namespace memfloor::cpu {

/// The vectors that this was compiled for: "avx512", "avx2", or "none" where they are too short.
const char* simd_convolution_vectors();

/// Whether the functions below take a convolution.
bool simd_convolution_serves(const ConvolutionDescriptor& d);

/// Where a pass wants weight (o, t, i) of the canonical order (Co, kernel * kernel, Ci).
WeightLayout simd_weights(const ConvolutionDescriptor& d, SlicePass pass);

/// Into how many bands a pass may be cut. They depend on the shape only.
std::int64_t simd_convolution_bands(const ConvolutionDescriptor& d, SlicePass pass);
/// The rows of an image of `out` that a band writes.
RowRange simd_band_rows(const ConvolutionDescriptor& d, SlicePass pass, const Band& band);

/// What simd_convolution needs beside its operands: nothing in FP32.
std::int64_t simd_convolution_scratch_bytes(const ConvolutionDescriptor& d, SlicePass pass);

/// Forward: y[n][oy][ox][o] = sum over kh, kw, i of
/// x[n][s oy + kh - pad][s ox + kw - pad][i] * w[o][kh][kw][i], s the stride, pad = kernel / 2.
/// Backward-data: the dx for which <dx, x> = <dy, y>.
/// in: x or dy, out: y or dx, overwritten, its sums rounded once; dense, and apart. `packed` is w
/// in the layout above. All are faster on 64-byte boundaries. Only a band of `out` is written. Runs
/// on the calling thread; the bits of a pixel do not depend on the other images and bands. Throws
/// Error where simd_convolution_serves() is false.
template <class T>
void simd_convolution(const ConvolutionDescriptor& d, SlicePass pass, const T* in,
                      const float* packed, T* out, float* scratch, const Band& band = {});

/// A piece of a weight gradient is all taps between so many output and so many input channels.
inline constexpr std::int64_t kSimdChannels = 16;

/// What a piece needs beside its operands.
std::int64_t simd_weight_gradient_scratch_bytes(const ConvolutionDescriptor& d);

/// dw[o][kh][kw][i] = sum over n, oy, ox of
/// dy[n][oy][ox][o] * x[n][s oy + kh - pad][s ox + kw - pad][i],
/// for o in [co, co + kSimdChannels) and i in [ci, ci + kSimdChannels); both are multiples of that.
/// dw: (Co, kernel, kernel, Ci), of which the piece is overwritten; all dense. Runs on the calling
/// thread. Throws Error like simd_convolution.
template <class T>
void simd_weight_gradient(const ConvolutionDescriptor& d, std::int64_t co, std::int64_t ci,
                          const T* x, const T* dy, float* dw, float* scratch);

}  // namespace memfloor::cpu

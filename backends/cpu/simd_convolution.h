// Convolutions with 3x3 kernels, stride 1 and padding 1 in FP32 arithmetic: NHWC activations,
// channels in sixteens, operands stored as T = float, Bf16 or F16. For processors with vectors of
// at least 8 floats; the others, and the other shapes, are oneDNN's.
#pragma once

#include <cstdint>

#include "backends/weight_layout.h"

namespace memfloor::cpu {

/// x: (H, W, Ci) to y: (H, W, Co), for every image of a batch. Extents are at least 1.
struct SimdShape {
  std::int64_t h, w, ci, co;
};

/// The vectors that this was compiled for: "avx512", "avx2", or "none" where they are too short.
const char* simd_convolution_vectors();

/// Whether the functions below take a convolution.
bool simd_convolution_serves(const SimdShape& shape, int kernel, int stride);

/// Where simd_convolution wants weight (o, t, i) of the canonical order (Co, 3 * 3, Ci).
WeightLayout simd_forward_layout(std::int64_t ci, std::int64_t co, Dtype dtype);

/// The same for dx = convolution of dy: {h, w, co, ci} in place of {h, w, ci, co}, taps flipped.
/// ci and co are those of the forward convolution.
WeightLayout simd_backward_data_layout(std::int64_t ci, std::int64_t co, Dtype dtype);

/// What simd_convolution needs beside its operands: nothing in FP32.
template <class T>
std::int64_t simd_convolution_scratch_bytes(const SimdShape& shape, std::int64_t images);

/// y[n][oy][ox][o] = sum over kh, kw, i of x[n][oy + kh - 1][ox + kw - 1][i] * w[o][kh][kw][i].
/// x: (images, H, W, Ci), y: (images, H, W, Co), overwritten, its sums rounded once; dense, and
/// apart. `packed` is w in a layout above. All are faster on 64-byte boundaries. Runs on the
/// calling thread; the bits of an image do not depend on the other images. Throws Error where
/// simd_convolution_serves() is false.
template <class T>
void simd_convolution(const SimdShape& shape, std::int64_t images, const T* x, const T* packed,
                      T* y, float* scratch);

/// A piece of a weight gradient is the 9 taps between so many output and so many input channels.
inline constexpr std::int64_t kSimdChannels = 16;

/// What a piece needs beside its operands.
std::int64_t simd_weight_gradient_scratch_bytes(const SimdShape& shape);

/// dw[o][kh][kw][i] = sum over n, oy, ox of dy[n][oy][ox][o] * x[n][oy + kh - 1][ox + kw - 1][i],
/// for o in [co, co + kSimdChannels) and i in [ci, ci + kSimdChannels); both are multiples of that.
/// x: (images, H, W, Ci), dy: (images, H, W, Co), dw: (Co, 3, 3, Ci), of which the piece is
/// overwritten; all dense. Runs on the calling thread. Throws Error like simd_convolution.
template <class T>
void simd_weight_gradient(const SimdShape& shape, std::int64_t images, std::int64_t co,
                          std::int64_t ci, const T* x, const T* dy, float* dw, float* scratch);

}  // namespace memfloor::cpu

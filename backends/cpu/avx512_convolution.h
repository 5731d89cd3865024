// FP32 convolution with 3x3 kernels, stride 1 and padding 1 on AVX-512: NHWC activations, channels
// in sixteens. Nothing is packed, padded or copied, so no scratch is needed.
#pragma once

#include <cstdint>

#include "backends/cpu/thread_pool.h"
#include "backends/weight_layout.h"

namespace memfloor::cpu {

/// x: (H, W, Ci) to y: (H, W, Co), for every image of a batch. Extents are at least 1.
struct Avx512Shape {
  std::int64_t h, w, ci, co;
};

/// Whether this CPU has AVX-512 F, BW, DQ, VL and FMA, and its operating system saves their
/// registers (asked once). Always false off x86-64.
bool avx512_available();

/// Whether the functions below take a convolution: channels in sixteens, kernel 3, stride 1.
bool avx512_convolution_supports(const Avx512Shape& shape, int kernel, int stride);

/// Where avx512_convolution wants weight (o, t, i) of the canonical order (Co, 3 * 3, Ci).
WeightLayout avx512_forward_layout(std::int64_t ci, std::int64_t co);

/// The same for dx = convolution of dy: {h, w, co, ci} in place of {h, w, ci, co}, taps flipped.
/// ci and co are those of the forward convolution.
WeightLayout avx512_backward_data_layout(std::int64_t ci, std::int64_t co);

/// y[n][oy][ox][o] = sum over kh, kw, i of x[n][oy + kh - 1][ox + kw - 1][i] * w[o][kh][kw][i].
/// x: (images, H, W, Ci), y: (images, H, W, Co), overwritten; dense, and apart. `packed` is w in a
/// layout above. All three are faster on 64-byte boundaries. Runs on the calling thread; the bits
/// of an image do not depend on the other images. Throws Error where avx512_available() is false
/// or avx512_convolution_supports() is.
void avx512_convolution(const Avx512Shape& shape, std::int64_t images, const float* x,
                        const float* packed, float* y);

/// dw[o][kh][kw][i] = sum over n, oy, ox of dy[n][oy][ox][o] * x[n][oy + kh - 1][ox + kw - 1][i].
/// x: (images, H, W, Ci), dy: (images, H, W, Co), dw: (Co, 3, 3, Ci), overwritten; all dense.
/// The bits do not depend on the number of threads. Throws Error like avx512_convolution.
void avx512_weight_gradient(const Avx512Shape& shape, std::int64_t images, const float* x,
                            const float* dy, float* dw, ThreadPool& pool);

}  // namespace memfloor::cpu

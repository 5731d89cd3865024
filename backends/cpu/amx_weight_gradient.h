// Weight gradient of a convolution on Intel AMX tiles: bf16 activations in NHWC, f32 sums.
// Results do not depend on the number of threads; scratch does not grow with the batch beyond a
// few images.
#pragma once

#include <cstdint>

#include "backends/cpu/thread_pool.h"
#include "core/dtype.h"

namespace memfloor::cpu {

/// Square kernels k = 1 or 3, stride 1 or 2, padding k / 2:
/// out_h() = (h + 2 * (k / 2) - k) / stride + 1. Every extent is at least 1.
struct WeightGradientShape {
  int n, h, w, ci, co, k, stride;

  int out_h() const { return (h + k / 2 * 2 - k) / stride + 1; }
  int out_w() const { return (w + k / 2 * 2 - k) / stride + 1; }
};

/// Whether this CPU has AMX bf16 and the kernel lets the process use it (asked once). Always false
/// off x86-64 and when the environment variable MEMFLOOR_NO_AMX is set.
bool amx_available();

/// Bytes of scratch that amx_weight_gradient needs with a pool of `threads`.
std::int64_t amx_weight_gradient_scratch_bytes(const WeightGradientShape& shape, int threads);

/// dw[o][kh][kw][i] = sum over n, y, x of dy[n][y][x][o] * x[n][y * stride + kh - pad][...][i].
/// x: (N, H, W, Ci), dy: (N, out_h, out_w, Co), dw: (Co, k, k, Ci), overwritten; all dense.
/// `scratch` is 64-byte aligned and may hold anything. Bf16 subnormals count as zero (AMX).
/// A NaN or infinity in x may make more elements of dw NaN than the sum would.
/// Throws Error for other shapes, and where amx_available() is false.
void amx_weight_gradient(const WeightGradientShape& shape, const Bf16* x, const Bf16* dy, float* dw,
                         void* scratch, ThreadPool& pool);

}  // namespace memfloor::cpu

// Convolutions 3x3 of compressed weights, forward and backward-data: FP32 arithmetic that reads
// only the non-zeros. It takes every sum in the order of simd_convolution.h, whose products of
// finite pixels with zeros change nothing, so that both make the same bytes.
#pragma once

#include "backends/cpu/convolution_kernels.h"
#include "backends/non_zero_layout.h"

namespace memfloor::cpu {

/// Whether the functions below take a pass of a convolution: what simd_convolution_serves(), with
/// kernel 3 and images that vectors divide (32, 16 and 8 pixels wide among them).
bool sparse_convolution_serves(const ConvolutionDescriptor& d, SlicePass pass);

/// How it reads weight (o, t, i) of the canonical order (Co, 9, Ci).
NonZeroLayout sparse_convolution_layout(const ConvolutionDescriptor& d, SlicePass pass);

/// Into how many bands a pass may be cut, and what a band writes.
std::int64_t sparse_convolution_bands(const ConvolutionDescriptor& d, SlicePass pass);
Region sparse_band_region(const ConvolutionDescriptor& d, SlicePass pass, const Band& band);

std::int64_t sparse_convolution_scratch_bytes(const ConvolutionDescriptor& d, SlicePass pass);

/// simd_convolution() with `packed` in the layout above, which is handed in because it takes as
/// long to make as a small image. Throws Error where sparse_convolution_serves() is false.
template <class T>
void sparse_convolution(const ConvolutionDescriptor& d, SlicePass pass, const T* in,
                        const NonZeroLayout& layout, const void* packed, T* out, float* scratch,
                        const Band& band = {});

}  // namespace memfloor::cpu

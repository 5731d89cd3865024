// What the convolution kernels on oneDNN share: primitives bound to pointers at run time, with
// scratch from the caller, and the choice among oneDNN's implementations.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backends/convolution.h"
#include "backends/cpu/onednn.h"
#include "backends/cpu/slices.h"
#include "core/ledger.h"

namespace memfloor::cpu {

// A primitive with, for every thread, the memory objects it runs on.
class BoundPrimitive {
 public:
  struct Argument {
    int index;
    dnnl::memory::desc desc;
  };

  BoundPrimitive(dnnl::primitive primitive, std::vector<Argument> arguments, int threads)
      : primitive_(std::move(primitive)), arguments_(std::move(arguments)) {
    for (int thread = 0; thread < threads; ++thread) {
      std::unordered_map<int, dnnl::memory> bound;
      for (const Argument& a : arguments_)
        bound.emplace(a.index, dnnl::memory(a.desc, onednn_engine(), DNNL_MEMORY_NONE));
      bound_.push_back(std::move(bound));
    }
  }

  // Pointers in the order of the arguments.
  void run(int thread, std::initializer_list<const void*> pointers) const {
    auto pointer = pointers.begin();
    for (const Argument& a : arguments_)
      bound_[thread].at(a.index).set_data_handle(const_cast<void*>(*pointer++));
    primitive_.execute(onednn_stream(), bound_[thread]);
  }

 private:
  dnnl::primitive primitive_;
  std::vector<Argument> arguments_;
  mutable std::vector<std::unordered_map<int, dnnl::memory>> bound_;  // one a thread
};

// oneDNN's GEMM-based fallback has fat scratch and allocates behind our back; its reference kernel
// is slow. Moves to the first implementation that is neither, if there is one. For FP16 operands
// there has to be one: widening to FP32 is better than the others.
struct LeanImplementation {
  Dtype operands;

  template <class PrimitiveDesc>
  PrimitiveDesc operator()(PrimitiveDesc first) const {
    PrimitiveDesc candidate = first;
    do {
      const std::string name = candidate.impl_info_str();
      if (name.find("gemm") == std::string::npos && name.find("ref") == std::string::npos)
        return candidate;
    } while (candidate.next_impl());
    if (operands == Dtype::f16) throw dnnl::error(dnnl_unimplemented, "no native FP16 kernel");
    return first;
  }
};

inline OnednnConvolution operands(const ConvolutionDescriptor& d, Dtype weights) {
  using dnnl::memory;
  using tag = memory::format_tag;
  const memory::dim pad = d.kernel / 2;
  const auto high = [&](std::int64_t in, std::int64_t out) {
    return (out - 1) * d.stride + d.kernel - in - pad;
  };
  const auto type = onednn_type(d.dtype);
  return {memory::desc({d.images, d.channels_in, d.height, d.width}, type, tag::nhwc),
          memory::desc({d.channels_out, d.channels_in, d.kernel, d.kernel}, onednn_type(weights),
                       tag::any),
          memory::desc({d.images, d.channels_out, d.out_height(), d.out_width()}, type, tag::nhwc),
          {d.stride, d.stride},
          {pad, pad},
          {high(d.height, d.out_height()), high(d.width, d.out_width())}};
}

inline WeightLayout weight_layout(const dnnl::memory::desc& weights, const ConvolutionDescriptor& d,
                                  Dtype dtype) {
  return layout_of(weights, d.channels_out, d.channels_in, d.kernel, dtype);
}

template <class PrimitiveDesc>
std::int64_t scratch_of(const PrimitiveDesc& desc) {
  return aligned(static_cast<std::int64_t>(desc.scratchpad_desc().get_size()));
}

// Images whose input and output, widened, a thread holds at a time: what a second-level cache
// takes, whatever the batch; at least one.
inline std::int64_t widened_images(const ConvolutionDescriptor& d, std::int64_t images) {
  constexpr std::int64_t kBytes = 256 << 10, kMost = 8;
  const std::int64_t image_bytes =
      4 * (d.height * d.width * d.channels_in + d.out_height() * d.out_width() * d.channels_out);
  return largest_divisor(images, std::clamp<std::int64_t>(kBytes / image_bytes, 1, kMost));
}

// Runs `make`; null where oneDNN has no kernel for 16-bit operands on this CPU.
template <class Make>
auto unless_unimplemented(Dtype dtype, Make&& make) -> decltype(make()) {
  try {
    return make();
  } catch (const dnnl::error&) {
    if (dtype == Dtype::f32) throw;
    return nullptr;
  }
}

// FP16 training came with 3.2; older versions are not asked for it.
inline bool onednn_knows(Dtype dtype) {
  const dnnl_version_t* version = dnnl_version();
  return dtype != Dtype::f16 || version->major > 3 || (version->major == 3 && version->minor >= 2);
}

}  // namespace memfloor::cpu

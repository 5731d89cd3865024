// The differences between oneDNN 2.x and 3.x, and nothing else.
#pragma once

#include <functional>
#include <oneapi/dnnl/dnnl.hpp>

#include "backends/weight_layout.h"

namespace memfloor::cpu {

inline dnnl::engine& onednn_engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

/// The stream of the calling thread; execution on it is synchronous.
inline dnnl::stream& onednn_stream() {
  thread_local dnnl::stream stream(onednn_engine());
  return stream;
}

inline dnnl::memory::data_type onednn_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::f16:
      return dnnl::memory::data_type::f16;
    case Dtype::bf16:
      return dnnl::memory::data_type::bf16;
    default:
      return dnnl::memory::data_type::f32;
  }
}

/// Operands of a convolution in oneDNN's terms; padding may differ between the two sides.
struct OnednnConvolution {
  dnnl::memory::desc source, weights, destination;
  dnnl::memory::dims strides, padding_low, padding_high;
};

/// Scratch is ours to give, so that the ledger knows it.
inline dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

// `choose` picks among a primitive's implementations, with next_impl(). It runs in here because
// oneDNN 2 goes on reading the operation's descriptor and the hint, which must still exist.
#if DNNL_VERSION_MAJOR >= 3

template <class Choose = std::identity>
auto forward_primitive(const OnednnConvolution& c, Choose choose = {}) {
  return choose(dnnl::convolution_forward::primitive_desc(
      onednn_engine(), dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct,
      c.source, c.weights, c.destination, c.strides, c.padding_low, c.padding_high,
      user_scratchpad()));
}
template <class Choose = std::identity>
auto backward_data_primitive(const OnednnConvolution& c,
                             const dnnl::convolution_forward::primitive_desc& hint,
                             Choose choose = {}) {
  return choose(dnnl::convolution_backward_data::primitive_desc(
      onednn_engine(), dnnl::algorithm::convolution_direct, c.source, c.weights, c.destination,
      c.strides, c.padding_low, c.padding_high, hint, user_scratchpad()));
}
template <class Choose = std::identity>
auto backward_weights_primitive(const OnednnConvolution& c,
                                const dnnl::convolution_forward::primitive_desc& hint,
                                Choose choose = {}) {
  return choose(dnnl::convolution_backward_weights::primitive_desc(
      onednn_engine(), dnnl::algorithm::convolution_direct, c.source, c.weights, c.destination,
      c.strides, c.padding_low, c.padding_high, hint, user_scratchpad()));
}

struct Blocking {
  dnnl::memory::dims strides, block_sizes, block_axes;
};
inline Blocking blocking_of(const dnnl::memory::desc& desc) {
  return {desc.get_strides(), desc.get_inner_blks(), desc.get_inner_idxs()};
}

#else

template <class Choose = std::identity>
auto forward_primitive(const OnednnConvolution& c, Choose choose = {}) {
  const dnnl::convolution_forward::desc op(dnnl::prop_kind::forward_training,
                                           dnnl::algorithm::convolution_direct, c.source, c.weights,
                                           c.destination, c.strides, c.padding_low, c.padding_high);
  return choose(dnnl::convolution_forward::primitive_desc(op, user_scratchpad(), onednn_engine()));
}
template <class Choose = std::identity>
auto backward_data_primitive(const OnednnConvolution& c,
                             const dnnl::convolution_forward::primitive_desc& hint,
                             Choose choose = {}) {
  const dnnl::convolution_backward_data::desc op(dnnl::algorithm::convolution_direct, c.source,
                                                 c.weights, c.destination, c.strides, c.padding_low,
                                                 c.padding_high);
  return choose(dnnl::convolution_backward_data::primitive_desc(op, user_scratchpad(),
                                                                onednn_engine(), hint));
}
template <class Choose = std::identity>
auto backward_weights_primitive(const OnednnConvolution& c,
                                const dnnl::convolution_forward::primitive_desc& hint,
                                Choose choose = {}) {
  const dnnl::convolution_backward_weights::desc op(dnnl::algorithm::convolution_direct, c.source,
                                                    c.weights, c.destination, c.strides,
                                                    c.padding_low, c.padding_high);
  return choose(dnnl::convolution_backward_weights::primitive_desc(op, user_scratchpad(),
                                                                   onednn_engine(), hint));
}

struct Blocking {
  dnnl::memory::dims strides, block_sizes, block_axes;
};
inline Blocking blocking_of(const dnnl::memory::desc& desc) {
  const dnnl_blocking_desc_t& b = desc.data.format_desc.blocking;
  return {{b.strides, b.strides + desc.data.ndims},
          {b.inner_blks, b.inner_blks + b.inner_nblks},
          {b.inner_idxs, b.inner_idxs + b.inner_nblks}};
}

#endif

/// The offset tables of an OIHW weight descriptor, however it is blocked.
inline WeightLayout layout_of(const dnnl::memory::desc& desc, std::int64_t outputs,
                              std::int64_t inputs, std::int64_t kernel, Dtype dtype) {
  const Blocking blocking = blocking_of(desc);
  // What coordinate `position` along one axis adds to the offset.
  const auto offset = [&](int axis, std::int64_t position) {
    std::int64_t sum = 0, inner_stride = 1;
    for (int block = static_cast<int>(blocking.block_sizes.size()) - 1; block >= 0; --block) {
      const std::int64_t size = blocking.block_sizes[block];
      if (blocking.block_axes[block] == axis) {
        sum += position % size * inner_stride;
        position /= size;
      }
      inner_stride *= size;
    }
    return sum + position * blocking.strides[axis];
  };
  WeightLayout layout;
  for (std::int64_t o = 0; o < outputs; ++o) layout.output.push_back(offset(0, o));
  for (std::int64_t i = 0; i < inputs; ++i) layout.input.push_back(offset(1, i));
  for (std::int64_t y = 0; y < kernel; ++y)
    for (std::int64_t x = 0; x < kernel; ++x) layout.tap.push_back(offset(2, y) + offset(3, x));
  layout.dtype = dtype;
  layout.elements = static_cast<std::int64_t>(desc.get_size() / size_of(dtype));
  return layout;
}

}  // namespace memfloor::cpu

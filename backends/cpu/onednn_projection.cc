// Projections of operands in 16 bits on CPUs that multiply those themselves: oneDNN's 1x1
// convolutions over fixed blocks of rows, with FP32 results in scratch.
#include <algorithm>
#include <optional>

#include "backends/cpu/convert.h"
#include "backends/cpu/onednn_primitive.h"
#include "backends/cpu/projection_kernels.h"

namespace memfloor::cpu {
namespace {

using Int = std::int64_t;

class OnednnRows final : public RowsKernel {
 public:
  OnednnRows(const RowsShape& shape, int threads) : s_(shape) {
    using dnnl::memory;
    using tag = memory::format_tag;
    const auto in = onednn_type(s_.in);
    const auto desc =
        forward_primitive({memory::desc({1, s_.from, kRows, 1}, in, tag::nhwc),
                           memory::desc({s_.to, s_.from, 1, 1}, in, tag::any),
                           memory::desc({1, s_.to, kRows, 1}, memory::data_type::f32, tag::nhwc),
                           {1, 1},
                           {0, 0},
                           {0, 0}},
                          LeanImplementation{s_.in});
    const std::string name = desc.impl_info_str();
    if (name.find("gemm") != std::string::npos || name.find("ref") != std::string::npos)
      throw dnnl::error(dnnl_unimplemented, "no lean kernel");
    primitive_.emplace(
        dnnl::convolution_forward(desc),
        std::vector<BoundPrimitive::Argument>{{DNNL_ARG_SRC, desc.src_desc()},
                                              {DNNL_ARG_WEIGHTS, desc.weights_desc()},
                                              {DNNL_ARG_DST, desc.dst_desc()},
                                              {DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc()}},
        threads);
    weights = layout_of(desc.weights_desc(), s_.to, s_.from, 1, s_.in);
    in_bytes_ = aligned(kRows * s_.from * element());
    sums_bytes_ = aligned(kRows * s_.to * 4);
    scratch_bytes = in_bytes_ + sums_bytes_ + scratch_of(desc);
  }

  Int slices(Int rows) const override { return ceil_div(rows, kRows); }

  void run(int thread, Int slice, Int rows, const void* in, const void* packed, void* out,
           const ProductFinish& finish, void* scratch) const override {
    const Int first = slice * kRows, count = std::min(kRows, rows - first);
    char* copy = static_cast<char*>(scratch);
    auto* sums = reinterpret_cast<float*>(copy + in_bytes_);
    const char* block = static_cast<const char*>(in) + first * s_.from * element();
    if (count < kRows) {  // the last block is filled up with zeros
      const Int bytes = count * s_.from * element();
      std::copy_n(block, bytes, copy);
      std::fill(copy + bytes, copy + in_bytes_, char{});
      block = copy;
    }
    primitive_->run(thread, {block, packed, sums, copy + in_bytes_ + sums_bytes_});
    if (finish.bias || finish.relu)
      for (Int row = 0; row < count; ++row) finish_row(sums + row * s_.to, finish);
    put_rows(sums, count, s_.to, first, 0, s_.to, s_.out, finish.add, out);
  }

 private:
  static constexpr Int kRows = 64;

  Int element() const { return static_cast<Int>(size_of(s_.in)); }

  void finish_row(float* sums, const ProductFinish& finish) const {
    for (Int o = 0; o < s_.to; ++o) {
      const float sum = finish.bias ? sums[o] + finish.bias[o] : sums[o];
      sums[o] = finish.relu && sum < 0 ? 0 : sum;
    }
  }

  const RowsShape s_;
  std::optional<BoundPrimitive> primitive_;
  Int in_bytes_ = 0, sums_bytes_ = 0;
};

}  // namespace

std::unique_ptr<RowsKernel> make_onednn_rows(const RowsShape& shape, int threads) {
  if (shape.in == Dtype::f32 || !onednn_knows(shape.in)) return nullptr;
  return unless_unimplemented(shape.in,
                              [&] { return std::make_unique<OnednnRows>(shape, threads); });
}

}  // namespace memfloor::cpu

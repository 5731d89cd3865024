// A projection's weight gradient on Intel AMX: rows are images of one pixel.
#include <algorithm>

#include "backends/cpu/amx_weight_gradient.h"
#include "backends/cpu/convert.h"
#include "backends/cpu/projection_kernels.h"
#include "backends/cpu/slices.h"
#include "core/ledger.h"

namespace memfloor::cpu {
namespace {

using Int = std::int64_t;

class AmxGradient final : public ProjectionGradientKernel {
 public:
  AmxGradient(const ProjectionDescriptor& d, ThreadPool& pool) : d_(d), pool_(pool) {
    gradient = WeightLayout::ohwi(d.outputs, 1, d.inputs, Dtype::f32);
    // What the kernel asks for goes up and down with the rows.
    for (Int rows = 1; rows <= kRows; ++rows)
      kernel_bytes_ = std::max(
          kernel_bytes_, aligned(amx_weight_gradient_scratch_bytes(shape(rows), pool.threads())));
    scratch_bytes = kernel_bytes_ + gradient.bytes();
  }

  void run(Int rows, const void* x, const void* dy, float* dw, float* db,
           void* scratch) const override {
    auto* sum = reinterpret_cast<float*>(static_cast<char*>(scratch) + kernel_bytes_);
    for (Int row = 0; row < rows; row += kRows) {
      amx_weight_gradient(
          shape(std::min(kRows, rows - row)), static_cast<const Bf16*>(x) + row * d_.inputs,
          static_cast<const Bf16*>(dy) + row * d_.outputs, row > 0 ? sum : dw, scratch, pool_);
      if (row > 0)
        pool_.parallel_for(d_.outputs, [&](Int o, int) {
          add_same(sum + o * d_.inputs, Dtype::f32, dw + o * d_.inputs, d_.inputs);
        });
    }
    if (db) sum_columns(rows, static_cast<const Bf16*>(dy), db);
  }

 private:
  static constexpr Int kRows = 4096;  // multiplied at a time

  WeightGradientShape shape(Int rows) const {
    return {static_cast<int>(rows),       1, 1, static_cast<int>(d_.inputs),
            static_cast<int>(d_.outputs), 1, 1};
  }

  void sum_columns(Int rows, const Bf16* dy, float* db) const {
    constexpr Int kColumns = 64, kBlock = 64;  // rows that are summed before they are added
    pool_.parallel_for(ceil_div(d_.outputs, kColumns), [&](Int tile, int) {
      const Int first = tile * kColumns, columns = std::min(kColumns, d_.outputs - first);
      std::fill_n(db + first, columns, 0.0f);
      for (Int row = 0; row < rows; row += kBlock) {
        float sums[kColumns] = {};
        for (Int r = row; r < std::min(rows, row + kBlock); ++r)
          for (Int c = 0; c < columns; ++c)
            sums[c] += static_cast<float>(dy[r * d_.outputs + first + c]);
        for (Int c = 0; c < columns; ++c) db[first + c] += sums[c];
      }
    });
  }

  const ProjectionDescriptor d_;
  ThreadPool& pool_;
  Int kernel_bytes_ = 0;
};

}  // namespace

std::unique_ptr<ProjectionGradientKernel> make_amx_gradient(const ProjectionDescriptor& d,
                                                            ThreadPool& pool) {
  if (d.dtype != Dtype::bf16 || !amx_available()) return nullptr;
  return std::make_unique<AmxGradient>(d, pool);
}

}  // namespace memfloor::cpu

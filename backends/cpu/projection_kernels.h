// The kernels that a projection on the CPU can be made of; CpuProjection (projection.cc) picks one
// for each direction. Forward and backward-data are the same product, y = x w^T and dx = dy w, with
// inputs and outputs exchanged; each factory returns null where its kernel does not serve.
#pragma once

#include <memory>

#include "backends/cpu/matrix_product.h"
#include "backends/cpu/thread_pool.h"
#include "backends/projection.h"

namespace memfloor::cpu {

/// out (rows, to) = in (rows, from) * w^T, over slices of the rows and of the columns of `out`.
class RowsKernel {
 public:
  virtual ~RowsKernel() = default;
  virtual std::int64_t slices(std::int64_t rows) const = 0;
  virtual void run(int thread, std::int64_t slice, std::int64_t rows, const void* in,
                   const void* weights, void* out, const ProductFinish& finish,
                   void* scratch) const = 0;

  WeightLayout weights;            // as a projection from `from` to `to` has it
  std::int64_t scratch_bytes = 0;  // a thread
};

/// What a RowsKernel multiplies; both formats are those of values.
struct RowsShape {
  std::int64_t from, to;
  Dtype in, out;
};

/// dw and db as Projection::backward_weights has them.
class ProjectionGradientKernel {
 public:
  virtual ~ProjectionGradientKernel() = default;
  virtual void run(std::int64_t rows, const void* x, const void* dy, float* dw, float* db,
                   void* scratch) const = 0;

  WeightLayout gradient;
  std::int64_t scratch_bytes = 0;  // all threads together
};

// oneDNN, for operands in 16 bits that this CPU multiplies as they are.
std::unique_ptr<RowsKernel> make_onednn_rows(const RowsShape& shape, int threads);

// Intel AMX, for bf16.
std::unique_ptr<ProjectionGradientKernel> make_amx_gradient(const ProjectionDescriptor& d,
                                                            ThreadPool& pool);

// Our FP32 products (matrix_product.h), for everything: operands in 16 bits are widened into
// scratch.
std::unique_ptr<RowsKernel> make_panel_rows(const RowsShape& shape);
std::unique_ptr<ProjectionGradientKernel> make_panel_gradient(const ProjectionDescriptor& d,
                                                              ThreadPool& pool);

/// rows [first, first + count) of out = finish(sums), for sums (count, columns) of the columns from
/// `column` of `out` (rows, stride). `finish` holds but the addition to `out`.
void put_rows(const float* sums, std::int64_t count, std::int64_t columns, std::int64_t first,
              std::int64_t column, std::int64_t stride, Dtype dtype, bool add, void* out);

}  // namespace memfloor::cpu

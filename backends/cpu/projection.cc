// Projection on the CPU: picks a kernel for each direction and runs it over slices of the rows.
#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/projection_kernels.h"

namespace memfloor::cpu {
namespace {

class CpuProjection final : public Projection {
 public:
  CpuProjection(const ProjectionDescriptor& d, ThreadPool& pool)
      : pool_(pool),
        forward_(pick_rows({d.inputs, d.outputs, d.dtype, d.output})),
        backward_data_(pick_rows({d.outputs, d.inputs, d.dtype, d.dtype})),
        backward_weights_(pick_gradient(d)) {
    plan_.forward_weights = forward_->weights;
    plan_.backward_weights = backward_data_->weights;
    std::swap(plan_.backward_weights.input, plan_.backward_weights.output);
    plan_.gradient = backward_weights_->gradient;
    plan_.forward_scratch = pool.threads() * forward_->scratch_bytes;
    plan_.backward_data_scratch = pool.threads() * backward_data_->scratch_bytes;
    plan_.backward_weights_scratch = backward_weights_->scratch_bytes;
  }

  void forward(std::int64_t rows, const void* x, const void* weights, const float* bias, bool relu,
               void* y, void* scratch) const override {
    run(*forward_, rows, x, weights, y, {.bias = bias, .relu = relu}, scratch);
  }

  void backward_data(std::int64_t rows, const void* dy, const void* weights, void* dx,
                     bool accumulate, void* scratch) const override {
    run(*backward_data_, rows, dy, weights, dx, {.add = accumulate}, scratch);
  }

  void backward_weights(std::int64_t rows, const void* x, const void* dy, float* dw, float* db,
                        void* scratch) const override {
    backward_weights_->run(rows, x, dy, dw, db, scratch);
  }

 private:
  std::unique_ptr<RowsKernel> pick_rows(const RowsShape& shape) const {
    if (auto kernel = make_onednn_rows(shape, pool_.threads())) return kernel;
    return make_panel_rows(shape);
  }

  std::unique_ptr<ProjectionGradientKernel> pick_gradient(const ProjectionDescriptor& d) const {
    if (auto kernel = make_amx_gradient(d, pool_)) return kernel;
    return make_panel_gradient(d, pool_);
  }

  void run(const RowsKernel& kernel, std::int64_t rows, const void* in, const void* weights,
           void* out, const ProductFinish& finish, void* scratch) const {
    pool_.parallel_for(kernel.slices(rows), [&](std::int64_t slice, int thread) {
      kernel.run(thread, slice, rows, in, weights, out, finish,
                 static_cast<char*>(scratch) + thread * kernel.scratch_bytes);
    });
  }

  ThreadPool& pool_;
  std::unique_ptr<RowsKernel> forward_, backward_data_;
  std::unique_ptr<ProjectionGradientKernel> backward_weights_;
};

}  // namespace

std::unique_ptr<Projection> make_projection(const ProjectionDescriptor& descriptor,
                                            ThreadPool& pool) {
  return std::make_unique<CpuProjection>(descriptor, pool);
}

}  // namespace memfloor::cpu

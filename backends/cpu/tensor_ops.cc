// Flat ops, cut into pieces of fixed size.
#include "backends/tensor_ops.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "backends/cpu/adam.h"
#include "backends/cpu/convert.h"
#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/matrix_rows.h"
#include "backends/cpu/sgd.h"
#include "backends/cpu/slices.h"
#include "backends/cpu/sparse_weights.h"
#include "backends/cpu/weight_packing.h"

namespace memfloor::cpu {
namespace {

constexpr std::int64_t kPiece = 16384;  // elements

class CpuTensorOps final : public TensorOps {
 public:
  explicit CpuTensorOps(ThreadPool& pool) : pool_(pool) {}

  void zero(void* data, std::int64_t bytes) override {
    std::memset(data, 0, static_cast<std::size_t>(bytes));
  }
  void copy(void* to, const void* from, std::int64_t bytes) override {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void copy_rows(void* to, std::int64_t to_stride, const void* from, std::int64_t from_stride,
                 std::int64_t row_bytes, std::int64_t rows) override {
    constexpr std::int64_t kRows = 64;
    pool_.parallel_for(ceil_div(rows, kRows), [&](std::int64_t i, int) {
      for (std::int64_t row = i * kRows; row < std::min(rows, (i + 1) * kRows); ++row)
        std::memcpy(static_cast<char*>(to) + row * to_stride,
                    static_cast<const char*>(from) + row * from_stride,
                    static_cast<std::size_t>(row_bytes));
    });
  }
  void upload(void* to, std::int64_t, const std::function<void(void*)>& fill) override { fill(to); }
  void download(void* to, const void* from, std::int64_t bytes) override { copy(to, from, bytes); }

  void on_host(const std::vector<DeviceArray>& arrays,
               const std::function<void(const std::vector<void*>&)>& body) override {
    std::vector<void*> host;
    for (const DeviceArray& array : arrays) host.push_back(array.data);
    body(host);
  }

  void add(const void* x, void* y, std::int64_t elements, Dtype dtype) override {
    const auto size = static_cast<std::int64_t>(size_of(dtype));
    pieces(elements, [&](std::int64_t begin, std::int64_t count) {
      add_same(static_cast<const char*>(x) + begin * size, dtype,
               static_cast<char*>(y) + begin * size, count);
    });
  }

  bool all_finite(const void* x, std::int64_t elements, Dtype dtype) override {
    std::atomic<bool> finite{true};
    with_dtype(dtype, [&](auto element) {
      const auto* values = static_cast<const decltype(element)*>(x);
      pieces(elements, [&](std::int64_t begin, std::int64_t count) {
        bool all = true;
        for (std::int64_t i = begin; i < begin + count; ++i)
          all &= std::isfinite(static_cast<float>(values[i]));
        if (!all) finite = false;
      });
    });
    return finite;
  }

  void pack_weights(const void* dense, Dtype from, const WeightLayout& layout,
                    void* packed) override {
    cpu::pack_weights(pool_, dense, from, layout, packed);
  }

  void unpack_gradient(const float* dw, const WeightLayout& layout, void* gradient, Dtype to,
                       bool accumulate) override {
    with_dtype(to, [&](auto out) {
      using To = decltype(out);
      const auto taps = static_cast<std::int64_t>(layout.tap.size());
      const auto inputs = static_cast<std::int64_t>(layout.input.size());
      pool_.parallel_for(static_cast<std::int64_t>(layout.output.size()), [&](std::int64_t o, int) {
        To* g = static_cast<To*>(gradient) + o * taps * inputs;
        for (std::int64_t t = 0; t < taps; ++t) {
          const float* from = dw + layout.output[o] + layout.tap[t];
          for (std::int64_t i = 0; i < inputs; ++i, ++g) {
            const float value = from[layout.input[i]];
            *g = To(accumulate ? static_cast<float>(*g) + value : value);
          }
        }
      });
    });
  }

  void unpack_sparse(const void* values, Dtype from, const SparsePattern& pattern,
                     std::int64_t first_output, const WeightLayout& layout, void* packed) override {
    unpack_sparse_weights(pool_, values, from, pattern, first_output, layout, packed);
  }
  void list_non_zeros(const void* values, Dtype from, const SparsePattern& pattern,
                      const NonZeroLayout& layout, void* packed) override {
    cpu::list_non_zeros(pool_, values, from, pattern, layout, packed);
  }
  void gather_gradient(const float* dw, const WeightLayout& layout, const SparsePattern& pattern,
                       std::int64_t first_output, void* gradient, Dtype to,
                       bool accumulate) override {
    gather_sparse_gradient(pool_, dw, layout, pattern, first_output, gradient, to, accumulate);
  }

  void gather_rows(const void* matrix, Dtype from, std::int64_t outputs, std::int64_t inputs,
                   const std::int32_t* rows, std::int64_t count, Dtype to, void* y) override {
    cpu::gather_rows(pool_, matrix, from, outputs, inputs, rows, count, to, y);
  }
  void add_rows(const void* x, Dtype from, const std::int32_t* rows, std::int64_t count,
                void* matrix, Dtype to, std::int64_t outputs, std::int64_t inputs,
                void* scratch) override {
    cpu::add_rows(pool_, x, from, rows, count, matrix, to, outputs, inputs, scratch);
  }
  void gather_sparse_rows(const void* values, Dtype from, const SparsePattern& pattern,
                          const std::int32_t* rows, std::int64_t count, Dtype to, void* y,
                          void* scratch) override {
    cpu::gather_sparse_rows(pool_, values, from, pattern, rows, count, to, y, scratch);
  }
  void add_sparse_rows(const void* x, Dtype from, const std::int32_t* rows, std::int64_t count,
                       void* values, Dtype to, const SparsePattern& pattern,
                       void* scratch) override {
    cpu::add_sparse_rows(pool_, x, from, rows, count, values, to, pattern, scratch);
  }

  void sgd(const SgdRule& rule, const UpdateStep& step, const UpdateArrays& arrays) override {
    pieces(arrays.elements, [&](std::int64_t begin, std::int64_t count) {
      sgd_piece(rule, step, arrays, begin, count);
    });
  }

  void adam(const AdamRule& rule, const UpdateStep& step, const UpdateArrays& arrays) override {
    pieces(arrays.elements, [&](std::int64_t begin, std::int64_t count) {
      adam_piece(rule, step, arrays, begin, count);
    });
  }

  void images_to_tensor(const std::uint8_t* bytes, std::int64_t pixels,
                        const std::array<float, 3>& mean, const std::array<float, 3>& deviation,
                        Dtype dtype, void* y) override {
    float table[3][256];
    for (int c = 0; c < 3; ++c)
      for (int v = 0; v < 256; ++v)
        table[c][v] = (static_cast<float>(v) / 255.0f - mean[c]) / deviation[c];
    with_dtype(dtype, [&](auto element) {
      using T = decltype(element);
      pieces(pixels, [&](std::int64_t begin, std::int64_t count) {
        for (std::int64_t p = begin; p < begin + count; ++p)
          for (int c = 0; c < 3; ++c) static_cast<T*>(y)[3 * p + c] = T(table[c][bytes[3 * p + c]]);
      });
    });
  }

 private:
  template <class Body>
  void pieces(std::int64_t elements, Body&& body) {
    pool_.parallel_for(ceil_div(elements, kPiece), [&](std::int64_t piece, int) {
      const std::int64_t begin = piece * kPiece;
      body(begin, std::min(kPiece, elements - begin));
    });
  }

  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<TensorOps> make_tensor_ops(ThreadPool& pool) {
  return std::make_unique<CpuTensorOps>(pool);
}

}  // namespace memfloor::cpu

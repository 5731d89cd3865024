// Projections by our own FP32 products. They read operands where they lie if those are FP32;
// operands in 16 bits are widened a block at a time, and results in 16 bits narrowed.
#include <algorithm>

#include "backends/cpu/convert.h"
#include "backends/cpu/projection_kernels.h"
#include "backends/cpu/slices.h"
#include "core/ledger.h"

namespace memfloor::cpu {
namespace {

using Int = std::int64_t;

class PanelRows final : public RowsKernel {
 public:
  explicit PanelRows(const RowsShape& shape) : s_(shape) {
    for (Int o = 0; o < s_.to; ++o)
      weights.output.push_back(o / kPanel * kPanel * s_.from + o % kPanel);
    for (Int i = 0; i < s_.from; ++i) weights.input.push_back(i * kPanel);
    weights.tap = {0};
    weights.elements = ceil_div(s_.to, kPanel) * kPanel * s_.from;
    if (s_.in != Dtype::f32) wide_in_bytes_ = aligned(kRows * s_.from * 4);
    if (s_.out != Dtype::f32) sums_bytes_ = aligned(kRows * std::min(kColumns, s_.to) * 4);
    scratch_bytes = wide_in_bytes_ + sums_bytes_;
  }

  // Slices with the same columns come one after another: they share weights.
  Int slices(Int rows) const override { return ceil_div(rows, kRows) * ceil_div(s_.to, kColumns); }

  void run(int, Int slice, Int rows, const void* in, const void* packed, void* out,
           const ProductFinish& finish, void* scratch) const override {
    const Int blocks = ceil_div(rows, kRows);
    const Int first = slice % blocks * kRows, column = slice / blocks * kColumns;
    const Int count = std::min(kRows, rows - first), columns = std::min(kColumns, s_.to - column);
    const float* a = static_cast<const float*>(in) + first * s_.from;
    if (wide_in_bytes_ > 0) {
      const auto element = static_cast<Int>(size_of(s_.in));
      auto* wide = static_cast<float*>(scratch);
      widen(static_cast<const char*>(in) + first * s_.from * element, s_.in, wide, count * s_.from);
      a = wide;
    }
    const float* panels = static_cast<const float*>(packed) + column * s_.from;
    ProductFinish here = finish;
    if (here.bias) here.bias += column;
    if (sums_bytes_ == 0)
      return multiply(count, columns, s_.from, a, s_.from, panels,
                      static_cast<float*>(out) + first * s_.to + column, s_.to, here);
    here.add = false;
    auto* sums = reinterpret_cast<float*>(static_cast<char*>(scratch) + wide_in_bytes_);
    multiply(count, columns, s_.from, a, s_.from, panels, sums, columns, here);
    put_rows(sums, count, columns, first, column, s_.to, s_.out, finish.add, out);
  }

 private:
  static constexpr Int kRows = 8 * kTileRows, kColumns = 256;
  static_assert(kColumns % kPanel == 0);

  const RowsShape s_;
  Int wide_in_bytes_ = 0, sums_bytes_ = 0;
};

// Rows that are packed together: their lines stay in the first cache for all groups and panels.
// Those after the next ones are already asked for: they may come from memory.
constexpr Int kStep = 4, kAhead = 2 * kStep;

/// `rows` elements of a column stretch of (depth, stride), for multiply_transposed. The sums of the
/// columns are added to `sums` if not null.
template <class T>
void pack_left(const T* from, Int stride, Int depth, Int rows, float* to, Int group_stride,
               float* sums) {
  for (Int first = 0; first < depth; first += kStep) {
    const Int last = std::min(depth, first + kStep);
    for (Int row = 0; row < rows; row += kTileRows) {
      float* group = to + row / kTileRows * group_stride;
      Part sum{};
      const Int valid = std::min<Int>(kTileRows, rows - row);
      for (Int k = first; k < last; ++k) {
        __builtin_prefetch(from + (k + kAhead) * stride + row);
        Part values{};
        if (row + kPart <= rows) {
          load_part(from + k * stride + row, values);
        } else {
          T padded[kPart] = {};
          std::copy_n(from + k * stride + row, valid, padded);
          load_part(padded, values);
        }
        // What is stored beyond kTileRows is the next k's, or in the gap between groups.
        store_part(group + k * kTileRows, values);
        sum += values;
      }
      if (sums)
        for (Int r = 0; r < valid; ++r) sums[row + r] += sum[static_cast<int>(r)];
    }
  }
}

/// (depth, columns) of (depth, stride) as panels.
template <class T>
void pack_panels(const T* from, Int stride, Int depth, Int columns, float* to, Int panel_stride) {
  for (Int first = 0; first < depth; first += kStep)
    for (Int column = 0; column < columns; column += kPanel) {
      const Int valid = std::min<Int>(kPanel, columns - column),
                last = std::min(depth, first + kStep);
      for (Int k = first; k < last; ++k) {
        const T* row = from + k * stride + column;
        __builtin_prefetch(row + kAhead * stride);
        float* panel = to + column / kPanel * panel_stride + k * kPanel;
        if (valid == kPanel) {
#pragma GCC unroll 2
          for (int half = 0; half < kPanel; half += kPart) {
            Part values;
            load_part(row + half, values);
            store_part(panel + half, values);
          }
        } else {
          for (Int c = 0; c < valid; ++c) panel[c] = static_cast<float>(row[c]);
          std::fill(panel + valid, panel + kPanel, 0.0f);
        }
      }
    }
}

/// Tiles of dw; each walks all rows, kDepth at a time.
class PanelGradient final : public ProjectionGradientKernel {
 public:
  PanelGradient(const ProjectionDescriptor& d, ThreadPool& pool) : d_(d), pool_(pool) {
    gradient = WeightLayout::ohwi(d.outputs, 1, d.inputs, Dtype::f32);
    left_bytes_ = aligned(ceil_div(std::min(kOutputs, d.outputs), kTileRows) * kGroupStride * 4);
    thread_bytes_ = left_bytes_ + ceil_div(std::min(kInputs, d.inputs), kPanel) * kPanelStride * 4;
    scratch_bytes = pool.threads() * thread_bytes_;
  }

  void run(Int rows, const void* x, const void* dy, float* dw, float* db,
           void* scratch) const override {
    const Int output_tiles = ceil_div(d_.outputs, kOutputs);
    with_dtype(d_.dtype, [&](auto element) {
      using T = decltype(element);
      pool_.parallel_for(output_tiles * ceil_div(d_.inputs, kInputs), [&](Int tile, int thread) {
        const Int output = tile % output_tiles * kOutputs, input = tile / output_tiles * kInputs;
        auto* left = reinterpret_cast<float*>(static_cast<char*>(scratch) + thread * thread_bytes_);
        run_tile(rows, static_cast<const T*>(x), static_cast<const T*>(dy), output, input, dw,
                 input == 0 ? db : nullptr, left, left + left_bytes_ / 4);
      });
    });
  }

 private:
  static constexpr Int kOutputs = 512, kInputs = 256, kDepth = 128;
  // Not powers of two, whose lines would drive each other out of the first cache.
  static constexpr Int kGroupStride = kDepth * kTileRows + kPart;
  static constexpr Int kPanelStride = kDepth * kPanel + kPanel;

  template <class T>
  void run_tile(Int rows, const T* x, const T* dy, Int output, Int input, float* dw, float* db,
                float* left, float* panels) const {
    const Int outputs = std::min(kOutputs, d_.outputs - output);
    const Int inputs = std::min(kInputs, d_.inputs - input);
    if (db) std::fill_n(db + output, outputs, 0.0f);
    for (Int row = 0; row < rows; row += kDepth) {
      const Int depth = std::min(kDepth, rows - row);
      pack_left(dy + row * d_.outputs + output, d_.outputs, depth, outputs, left, kGroupStride,
                db ? db + output : nullptr);
      pack_panels(x + row * d_.inputs + input, d_.inputs, depth, inputs, panels, kPanelStride);
      for (Int i = 0; i < inputs; i += kPanel) {
        const auto columns = static_cast<int>(std::min<Int>(kPanel, inputs - i));
        multiply_transposed(outputs, columns, depth, left, kGroupStride,
                            panels + i / kPanel * kPanelStride, dw + output * d_.inputs + input + i,
                            d_.inputs, row > 0);
      }
    }
  }

  const ProjectionDescriptor d_;
  ThreadPool& pool_;
  Int left_bytes_ = 0, thread_bytes_ = 0;
};

}  // namespace

void put_rows(const float* sums, Int count, Int columns, Int first, Int column, Int stride,
              Dtype dtype, bool add, void* out) {
  const auto element = static_cast<Int>(size_of(dtype));
  char* to = static_cast<char*>(out) + (first * stride + column) * element;
  for (Int row = 0; row < count; ++row, sums += columns, to += stride * element) {
    if (add)
      add_into(sums, dtype, to, columns);
    else
      narrow(sums, dtype, to, columns);
  }
}

std::unique_ptr<RowsKernel> make_panel_rows(const RowsShape& shape) {
  return std::make_unique<PanelRows>(shape);
}

std::unique_ptr<ProjectionGradientKernel> make_panel_gradient(const ProjectionDescriptor& d,
                                                              ThreadPool& pool) {
  return std::make_unique<PanelGradient>(d, pool);
}

}  // namespace memfloor::cpu

// Compressed weights into a kernel's layout and a kernel's gradient back, beside the dense ops.
#include "backends/sparse_pattern.h"
#include "tests/op_testing.h"
#include "tests/sparse_testing.h"

namespace memfloor::testing {
namespace {

struct SparseCase {
  std::int64_t outputs, inputs;
  int kernel;
  double density;
};

class SparseOps : public ::testing::TestWithParam<SparseIndex> {};

// Zeros where a random half or so of the weights are; the non-zeros; their pattern.
struct Sample {
  Sample(SparseIndex index, const SparseCase& c)
      : taps(c.kernel * c.kernel), dense(numbers(c.outputs * taps * c.inputs, 7)) {
    std::vector<bool> stored;
    for (std::size_t i = 0; i < dense.size(); ++i)
      stored.push_back(mix(static_cast<std::uint32_t>(i)) < c.density * 0x1p32);
    for (std::size_t i = 0; i < dense.size(); ++i)
      if (stored[i])
        values.push_back(dense[i]);
      else
        dense[i] = 0;
    pattern = TestPattern(index, c.outputs, taps, c.inputs, stored);
  }
  std::int64_t taps;
  Floats dense, values;
  TestPattern pattern;
};

const SparseCase kCases[] = {{32, 16, 3, 0.2},  {64, 64, 3, 0.5},  {17, 5, 3, 0.3}, {3, 70, 1, 0.9},
                             {40, 33, 3, 0.05}, {128, 64, 3, 0.1}, {16, 16, 3, 1},  {8, 8, 3, 0}};

std::vector<WeightLayout> layouts_of(const SparseCase& c) {
  const Convolution& op = backend()->convolution({2, 8, 8, c.inputs, c.outputs, c.kernel, 1});
  return {op.plan().forward_weights, op.plan().backward_weights,
          WeightLayout::ohwi(c.outputs, c.kernel * c.kernel, c.inputs, Dtype::bf16)};
}

TEST_P(SparseOps, UnpackIsThePackedDenseWeight) {
  TensorOps& ops = backend()->tensor_ops();
  for (const SparseCase& c : kCases) {
    const Sample sample(GetParam(), c);
    for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16})
      for (const WeightLayout& layout : layouts_of(c)) {
        const Buffer dense(sample.dense, dtype), values(sample.values, dtype);
        const Buffer expected(layout.bytes()), packed(layout.bytes());
        ops.pack_weights(dense.data(), dtype, layout, expected.data());
        ops.unpack_sparse(values.data(), dtype, sample.pattern.view(), 0, layout, packed.data());
        const auto bytes = static_cast<std::size_t>(layout.bytes());
        EXPECT_EQ(packed.bytes(0, bytes), expected.bytes(0, bytes))
            << c.outputs << " x " << c.inputs << ", " << name_of(dtype);
      }
  }
}

// Cells [i / 4][o][tap], as a kernel may want them, and what the backend's own kernels want.
std::vector<NonZeroLayout> non_zero_layouts_of(const SparseCase& c) {
  const std::int64_t taps = c.kernel * c.kernel;
  NonZeroLayout blocks;
  blocks.cells = (c.inputs + 3) / 4 * c.outputs * taps;
  for (std::int64_t o = 0; o < c.outputs; ++o) {
    blocks.cell.output.push_back(o * taps);
    blocks.offset.output.push_back(0);
  }
  for (std::int64_t t = 0; t < taps; ++t) {
    blocks.cell.tap.push_back(taps - 1 - t);
    blocks.offset.tap.push_back(t * 100);
  }
  for (std::int64_t i = 0; i < c.inputs; ++i) {
    blocks.cell.input.push_back(i / 4 * c.outputs * taps);
    blocks.offset.input.push_back(i % 4);
  }
  std::vector<NonZeroLayout> layouts{blocks};
  const ConvolutionPlan& plan =
      backend()->convolution({2, 8, 8, c.inputs, c.outputs, c.kernel, 1}).plan();
  for (const NonZeroLayout* layout : {&plan.forward_non_zeros, &plan.backward_non_zeros})
    if (layout->cells > 0) layouts.push_back(*layout);
  return layouts;
}

TEST_P(SparseOps, ListHoldsEveryNonZeroInItsCellInCanonicalOrder) {
  for (const SparseCase& c : kCases) {
    const Sample sample(GetParam(), c);
    const auto count = static_cast<std::int64_t>(sample.values.size());
    for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16})
      for (const NonZeroLayout& layout : non_zero_layouts_of(c)) {
        const Buffer values(sample.values, dtype), packed(layout.bytes(count));
        backend()->tensor_ops().list_non_zeros(values.data(), dtype, sample.pattern.view(), layout,
                                               packed.data());
        const Floats stored = values.read(dtype);
        std::vector<std::vector<NonZero>> cells(static_cast<std::size_t>(layout.cells));
        std::size_t k = 0, position = 0;
        for (std::int64_t o = 0; o < c.outputs; ++o)
          for (std::int64_t t = 0; t < sample.taps; ++t)
            for (std::int64_t i = 0; i < c.inputs; ++i)
              if (sample.pattern.stored(position++))
                cells.at(static_cast<std::size_t>(layout.cell.offset(o, t, i)))
                    .push_back({stored.at(k++),
                                static_cast<std::uint32_t>(layout.offset.offset(o, t, i))});
        const void* const data = packed.data();
        std::uint32_t next = 0;
        for (std::size_t cell = 0; cell < cells.size(); ++cell) {
          ASSERT_EQ(layout.starts(data)[cell], next);
          for (const NonZero& wanted : cells[cell]) {
            const NonZero& got = layout.entries(data)[next++];
            ASSERT_EQ(got.value, wanted.value);
            ASSERT_EQ(got.offset, wanted.offset);
          }
        }
        ASSERT_EQ(layout.starts(data)[layout.cells], next);
      }
  }
}

TEST_P(SparseOps, GatherIsTheDenseGradientThere) {
  TensorOps& ops = backend()->tensor_ops();
  for (const SparseCase& c : kCases) {
    const Sample sample(GetParam(), c);
    const WeightLayout layout =
        backend()->convolution({2, 8, 8, c.inputs, c.outputs, c.kernel, 1}).plan().gradient;
    const Buffer dw(numbers(layout.elements, 3), Dtype::f32);
    for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16})
      for (const bool accumulate : {false, true}) {
        const Buffer expected(sample.dense, dtype), gathered(sample.values, dtype);
        ops.unpack_gradient(dw.floats(), layout, expected.data(), dtype, accumulate);
        ops.gather_gradient(dw.floats(), layout, sample.pattern.view(), 0, gathered.data(), dtype,
                            accumulate);
        Floats wanted;
        const Floats all = expected.read(dtype);
        for (std::size_t i = 0; i < all.size(); ++i)
          if (sample.pattern.stored(i)) wanted.push_back(all[i]);
        EXPECT_EQ(gathered.read(dtype), wanted) << c.outputs << " x " << c.inputs;
      }
  }
}

INSTANTIATE_TEST_SUITE_P(, SparseOps,
                         ::testing::Values(SparseIndex::bitmap, SparseIndex::csr16,
                                           SparseIndex::csr32),
                         [](const auto& p) { return index_name(p.param); });

}  // namespace
}  // namespace memfloor::testing

// Rows by number of dense and compressed matrices, beside plain loops.
#include "tests/op_testing.h"
#include "tests/sparse_testing.h"
#include "tests/temporary_folder.h"

namespace memfloor::testing {
namespace {

struct RowCase {
  std::int64_t outputs, inputs, count;
  double density;
};
const RowCase kCases[] = {{40, 64, 30, 0.3}, {7, 20, 50, 0.2}, {300, 70, 500, 0.2},
                          {5, 1, 9, 0.5},    {3, 200, 0, 0.4}, {90, 130, 200, 1}};

// A matrix with its non-zeros, and positions that name few rows often and others seldom.
struct Sample {
  explicit Sample(const RowCase& c, SparseIndex index = SparseIndex::bitmap)
      : dense(numbers(c.outputs * c.inputs, 7)), x(numbers(c.count * c.inputs, 8)) {
    std::vector<bool> stored;
    for (std::size_t i = 0; i < dense.size(); ++i)
      stored.push_back(mix(static_cast<std::uint32_t>(i)) < c.density * 0x1p32);
    for (std::size_t i = 0; i < dense.size(); ++i)
      if (stored[i])
        values.push_back(dense[i]);
      else
        dense[i] = 0;
    pattern = TestPattern(index, c.outputs, 1, c.inputs, stored);
    for (std::int64_t p = 0; p < c.count; ++p) {
      const std::uint32_t r = mix(static_cast<std::uint32_t>(p) + 77);
      rows.push_back(static_cast<std::int32_t>(r % 3 ? r / 3 % 4 % c.outputs : r / 3 % c.outputs));
    }
  }
  Floats of_stored(const Floats& all) const {
    Floats some;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (pattern.stored(i)) some.push_back(all[i]);
    return some;
  }
  Floats dense, values, x;
  std::vector<std::int32_t> rows;
  TestPattern pattern;
};

Buffer scratch_for(const RowCase& c) { return Buffer(TensorOps::row_scratch(c.outputs, c.count)); }

Floats gathered(const Sample& s, const RowCase& c) {
  Floats y;
  for (const std::int32_t r : s.rows)
    y.insert(y.end(), s.dense.begin() + r * c.inputs, s.dense.begin() + (r + 1) * c.inputs);
  return y;
}

// What add_rows() documents: sums in FP32 in order of position, rounded into the matrix once.
Floats added(const Sample& s, const RowCase& c, Dtype from, Dtype to) {
  const Floats x = rounded(s.x, from);
  Floats matrix = rounded(s.dense, to);
  for (std::int64_t r = 0; r < c.outputs; ++r)
    for (std::int64_t i = 0; i < c.inputs; ++i) {
      float sum = 0;
      bool named = false;
      for (std::size_t p = 0; p < s.rows.size(); ++p)
        if (s.rows[p] == r) sum += x[p * c.inputs + i], named = true;
      if (named) matrix[r * c.inputs + i] += sum;
    }
  return rounded(matrix, to);
}

constexpr Dtype kDtypes[] = {Dtype::f32, Dtype::f16, Dtype::bf16};

TEST(MatrixRows, OfADenseMatrix) {
  TensorOps& ops = backend()->tensor_ops();
  for (const RowCase& c : kCases)
    for (const Dtype from : kDtypes)
      for (const Dtype to : kDtypes) {
        const Sample s(c);
        const Buffer matrix(s.dense, from), y(c.count * c.inputs * size_of(to));
        ops.gather_rows(matrix.data(), from, c.outputs, c.inputs, s.rows.data(), c.count, to,
                        y.data());
        EXPECT_EQ(y.read(to), rounded(rounded(gathered(s, c), from), to)) << c.outputs;

        const Buffer x(s.x, from), gradient(s.dense, to), scratch = scratch_for(c);
        ops.add_rows(x.data(), from, s.rows.data(), c.count, gradient.data(), to, c.outputs,
                     c.inputs, scratch.data());
        EXPECT_EQ(gradient.read(to), added(s, c, from, to)) << c.outputs;
      }
}

class SparseRows : public ::testing::TestWithParam<SparseIndex> {};

TEST_P(SparseRows, AreTheDenseMatrixsThere) {
  TensorOps& ops = backend()->tensor_ops();
  for (const RowCase& c : kCases)
    for (const Dtype from : kDtypes)
      for (const Dtype to : kDtypes) {
        const Sample s(c, GetParam());
        const Buffer values(s.values, from), y(c.count * c.inputs * size_of(to)),
            scratch = scratch_for(c);
        ops.gather_sparse_rows(values.data(), from, s.pattern.view(), s.rows.data(), c.count, to,
                               y.data(), scratch.data());
        EXPECT_EQ(y.read(to), rounded(rounded(gathered(s, c), from), to)) << c.outputs;

        const Buffer x(s.x, from), gradient(s.values, to);
        ops.add_sparse_rows(x.data(), from, s.rows.data(), c.count, gradient.data(), to,
                            s.pattern.view(), scratch.data());
        EXPECT_EQ(gradient.read(to), s.of_stored(added(s, c, from, to))) << c.outputs;
      }
}

INSTANTIATE_TEST_SUITE_P(, SparseRows,
                         ::testing::Values(SparseIndex::bitmap, SparseIndex::csr16,
                                           SparseIndex::csr32),
                         [](const auto& p) { return index_name(p.param); });

// 300 times 1 + 1/128 in BF16, whose sum lies where BF16 steps by 2: what a term is short of such a
// step must not be lost.
TEST(MatrixRows, FrequentRowsKeepTheirBits) {
  const std::vector<std::int32_t> rows(300, 1);
  const Buffer x(Floats(300, 1 + 0x1p-7f), Dtype::bf16), sum(Floats(3, 0), Dtype::bf16);
  const Buffer scratch(TensorOps::row_scratch(3, 300));
  backend()->tensor_ops().add_rows(x.data(), Dtype::bf16, rows.data(), 300, sum.data(), Dtype::bf16,
                                   3, 1, scratch.data());
  EXPECT_EQ(sum.read(Dtype::bf16), (Floats{0, 302, 0}));
}

TEST(MatrixRows, DoNotDependOnThreads) {
  const RowCase c{300, 70, 5000, 0.2};
  const Sample s(c);
  std::vector<std::string> bytes;
  for (const int threads : {1, 2, 5}) {
    const auto own = make_cpu_backend(threads);
    const Buffer x(s.x, Dtype::f32), gradient(s.values, Dtype::f32), scratch = scratch_for(c);
    own->tensor_ops().add_sparse_rows(x.data(), Dtype::f32, s.rows.data(), c.count, gradient.data(),
                                      Dtype::f32, s.pattern.view(), scratch.data());
    bytes.push_back(gradient.bytes(0, s.values.size() * 4));
  }
  EXPECT_TRUE(bytes[1] == bytes[0]);
  EXPECT_TRUE(bytes[2] == bytes[0]);
}

TEST(MatrixRows, OutsideTheMatrixAreRefused) {
  const Buffer matrix(Floats(12, 1), Dtype::f32), y(24);
  for (const std::int32_t row : {-1, 4}) {
    const std::int32_t rows[] = {0, row};
    EXPECT_NE(error_of<Error>([&] {
                backend()->tensor_ops().gather_rows(matrix.data(), Dtype::f32, 4, 3, rows, 2,
                                                    Dtype::f32, y.data());
              }).find(concat("names row ", row)),
              std::string::npos);
  }
}

}  // namespace
}  // namespace memfloor::testing

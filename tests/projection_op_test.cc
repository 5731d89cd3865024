// Projection against double loops, and its own bits among other rows and with other threads.
#include "tests/op_testing.h"

namespace memfloor::testing {
namespace {

// Memory that an op must not write beyond.
class Guarded {
 public:
  explicit Guarded(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)), all_(bytes + 64) {
    std::memset(static_cast<char*>(all_.data()) + bytes_, kMark, 64);
  }
  ~Guarded() {
    EXPECT_EQ(all_.bytes(bytes_, 64), std::string(64, kMark)) << "written beyond the end";
  }
  Guarded(const Guarded&) = delete;
  void* data() const { return all_.data(); }
  float* floats() const { return all_.floats(); }

 private:
  static constexpr char kMark = 0x5a;
  std::size_t bytes_;
  Buffer all_;
};

// Runs a projection on plain vectors; weights (outputs, inputs).
struct ProjectionRunner {
  explicit ProjectionRunner(const ProjectionDescriptor& descriptor,
                            const std::shared_ptr<Backend>& with = backend())
      : d(descriptor), device(with), op(device->projection(d)) {}

  Buffer packed(const Floats& w, const WeightLayout& layout) const {
    Buffer result(layout.bytes());
    device->tensor_ops().pack_weights(w.data(), Dtype::f32, layout, result.data());
    return result;
  }
  std::int64_t rows(const Floats& values, std::int64_t columns) const {
    return static_cast<std::int64_t>(values.size()) / columns;
  }

  Floats forward(const Floats& x, const Floats& w, const Floats* bias = nullptr,
                 bool relu = false) const {
    const std::int64_t n = rows(x, d.inputs);
    const Buffer in(x, d.dtype), weights = packed(w, op.plan().forward_weights);
    const Guarded scratch(op.plan().forward_scratch);
    const Guarded y(n * d.outputs * static_cast<std::int64_t>(size_of(d.output)));
    op.forward(n, in.data(), weights.data(), bias ? bias->data() : nullptr, relu, y.data(),
               scratch.data());
    return read(y, n * d.outputs, d.output);
  }
  Floats backward_data(const Floats& dy, const Floats& w, const Floats* dx = nullptr) const {
    const std::int64_t n = rows(dy, d.outputs), count = n * d.inputs;
    const Buffer out(dy, d.dtype), weights = packed(w, op.plan().backward_weights);
    const Guarded scratch(op.plan().backward_data_scratch);
    const Guarded in(count * static_cast<std::int64_t>(size_of(d.dtype)));
    if (dx) from_f32(dx->data(), d.dtype, in.data(), dx->size());
    op.backward_data(n, out.data(), weights.data(), in.data(), dx != nullptr, scratch.data());
    return read(in, count, d.dtype);
  }
  // dw (outputs, inputs), then db where asked for.
  Floats backward_weights(const Floats& x, const Floats& dy, bool with_db = true) const {
    const Buffer in(x, d.dtype), out(dy, d.dtype);
    const Guarded scratch(op.plan().backward_weights_scratch), dw(op.plan().gradient.bytes());
    const Guarded db(4 * d.outputs);
    op.backward_weights(rows(x, d.inputs), in.data(), out.data(), dw.floats(),
                        with_db ? db.floats() : nullptr, scratch.data());
    Floats dense(static_cast<std::size_t>(d.outputs * d.inputs));
    device->tensor_ops().unpack_gradient(dw.floats(), op.plan().gradient, dense.data(), Dtype::f32,
                                         false);
    if (with_db) dense.insert(dense.end(), db.floats(), db.floats() + d.outputs);
    return dense;
  }

  ProjectionDescriptor d;
  std::shared_ptr<Backend> device;
  const Projection& op;

 private:
  static Floats read(const Guarded& values, std::int64_t count, Dtype dtype) {
    Floats result(static_cast<std::size_t>(count));
    to_f32(values.data(), dtype, result.data(), result.size());
    return result;
  }
};

struct ProjectionCase {
  ProjectionDescriptor d;
  std::int64_t rows;
};
void PrintTo(const ProjectionCase& c, std::ostream* out) {
  *out << c.rows << " rows " << c.d.inputs << "->" << c.d.outputs << ' ' << name_of(c.d.dtype)
       << " to " << name_of(c.d.output);
}

std::vector<ProjectionCase> projection_cases() {
  // rows, inputs, outputs: less than a tile of anything, just more, blocks of the depth, tiles of
  // the columns, rows in several chunks; the last sizes are the model's and its vocabulary tiles'.
  constexpr std::int64_t kShapes[][3] = {
      {1, 1, 1},     {1, 8, 12},    {3, 6, 5},      {7, 17, 33},    {64, 16, 32},   {50, 300, 19},
      {49, 31, 300}, {97, 257, 65}, {600, 40, 70},  {1100, 20, 12}, {130, 512, 12}, {5, 512, 124},
      {61, 512, 28}, {33, 512, 60}, {20, 512, 488}, {100, 64, 520}, {30, 1030, 16}};
  std::vector<ProjectionCase> cases;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16})
    for (const Dtype output : {dtype, Dtype::f32})
      for (const auto& s : kShapes)
        if (output == dtype || dtype != Dtype::f32)
          cases.push_back({{s[1], s[2], dtype, output}, s[0]});
  return cases;
}

class ProjectionOp : public ::testing::TestWithParam<ProjectionCase> {
 protected:
  const ProjectionRunner run{GetParam().d};
  const std::int64_t rows = GetParam().rows, inputs = run.d.inputs, outputs = run.d.outputs;
  // Operands are what the op sees: rounded to its format. Values with 16 bits are given exactly.
  const Floats x = rounded(numbers(rows * inputs, 1), run.d.dtype);
  const Floats w = rounded(numbers(outputs * inputs, 2), run.d.dtype);
  const Floats dy = rounded(numbers(rows * outputs, 3), run.d.dtype);
  const Floats bias = numbers(outputs, 4);

  // Results in 16 bits are rounded once, by a unit each at most, two thirds of it on average.
  static double tolerance(Dtype dtype) {
    return dtype == Dtype::f32 ? 1e-6 : 0.77 * unit_of(dtype);
  }
  // Calls body(row, output, input) for every product of the sum.
  template <class Body>
  void for_products(Body&& body) const {
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t o = 0; o < outputs; ++o)
        for (std::int64_t i = 0; i < inputs; ++i)
          body(static_cast<std::size_t>(r * outputs + o), static_cast<std::size_t>(o * inputs + i),
               static_cast<std::size_t>(r * inputs + i));
  }
  Floats part(const Floats& values, std::int64_t columns, std::int64_t first,
              std::int64_t count) const {
    return {values.begin() + first * columns, values.begin() + (first + count) * columns};
  }
};

TEST_P(ProjectionOp, IsTheDoubleLoop) {
  Doubles y(dy.size()), dx(x.size()), dw(w.size() + bias.size());
  for_products([&](std::size_t yi, std::size_t wi, std::size_t xi) {
    y[yi] += static_cast<double>(x[xi]) * w[wi];
    dx[xi] += static_cast<double>(dy[yi]) * w[wi];
    dw[wi] += static_cast<double>(dy[yi]) * x[xi];
  });
  for (std::size_t i = 0; i < dy.size(); ++i)
    dw[w.size() + i % static_cast<std::size_t>(outputs)] += dy[i];
  EXPECT_LE(distance(run.forward(x, w), y), tolerance(run.d.output));
  EXPECT_LE(distance(run.backward_data(dy, w), dx), tolerance(run.d.dtype));
  const Floats gradient = run.backward_weights(x, dy);
  EXPECT_LE(distance(gradient, dw), 2e-6);
  EXPECT_EQ(run.backward_weights(x, dy, false), Floats(gradient.begin(), gradient.end() - outputs));

  for (std::size_t i = 0; i < y.size(); ++i) y[i] += bias[i % bias.size()];
  EXPECT_LE(distance(run.forward(x, w, &bias), y), tolerance(run.d.output));
  const Floats before = rounded(numbers(rows * inputs, 5), run.d.dtype);
  for (std::size_t i = 0; i < dx.size(); ++i) dx[i] += before[i];
  EXPECT_LE(distance(run.backward_data(dy, w, &before), dx), 1.5 * tolerance(run.d.dtype));
}

TEST_P(ProjectionOp, ReluFollowsTheBias) {
  Floats expected = run.forward(x, w, &bias);
  for (float& v : expected) v = std::max(0.0f, v);
  EXPECT_EQ(run.forward(x, w, &bias, true), expected);
  expected = run.forward(x, w);
  for (float& v : expected) v = std::max(0.0f, v);
  EXPECT_EQ(run.forward(x, w, nullptr, true), expected);
}

// Alone, among others, at any place: a row's bits are its own.
TEST_P(ProjectionOp, ARowIsItsOwn) {
  const Floats before = rounded(numbers(rows * inputs, 5), run.d.dtype);
  const Floats y = run.forward(x, w, &bias, true), dx = run.backward_data(dy, w, &before);
  for (const std::int64_t count : {std::int64_t{1}, rows / 3, rows - 1})
    for (const std::int64_t first : {std::int64_t{0}, (rows - count) / 2, rows - count}) {
      if (count < 1) continue;
      EXPECT_EQ(run.forward(part(x, inputs, first, count), w, &bias, true),
                part(y, outputs, first, count));
      const Floats from = part(before, inputs, first, count);
      EXPECT_EQ(run.backward_data(part(dy, outputs, first, count), w, &from),
                part(dx, inputs, first, count));
    }
}

TEST_P(ProjectionOp, ThreadsChangeNoBit) {
  static const std::shared_ptr<Backend> one = make_cpu_backend(1), three = make_cpu_backend(3);
  for (const auto& other : {one, three}) {
    const ProjectionRunner with(run.d, other);
    EXPECT_EQ(with.forward(x, w, &bias), run.forward(x, w, &bias));
    EXPECT_EQ(with.backward_data(dy, w), run.backward_data(dy, w));
    EXPECT_EQ(with.backward_weights(x, dy), run.backward_weights(x, dy));
  }
}

TEST_P(ProjectionOp, WeightsHaveAPlaceEach) {
  const ProjectionPlan& plan = run.op.plan();
  for (const WeightLayout* layout :
       {&plan.forward_weights, &plan.backward_weights, &plan.gradient}) {
    ASSERT_EQ(layout->dense_elements(), inputs * outputs);
    std::vector<bool> used(static_cast<std::size_t>(layout->elements));
    for (std::int64_t o = 0; o < outputs; ++o)
      for (std::int64_t i = 0; i < inputs; ++i) {
        const auto at = static_cast<std::size_t>(layout->offset(o, 0, i));
        ASSERT_LT(at, used.size());
        ASSERT_FALSE(used[at]);
        used[at] = true;
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, ProjectionOp, ::testing::ValuesIn(projection_cases()));

TEST(Projection, ReluLetsNanThrough) {
  const ProjectionRunner run({8, 12, Dtype::f32, Dtype::f32});
  Floats x = numbers(2 * 8, 1);
  x[3] = NAN;
  const Floats y = run.forward(x, numbers(8 * 12, 2), nullptr, true);
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i < 12);
}

// A matrix whose outputs go tile by tile is the same matrix.
TEST(Projection, TilesOfTheOutputsAreTheWhole) {
  constexpr std::int64_t kRows = 19, kInputs = 64, kOutputs = 1512, kTile = 512;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const Floats x = numbers(kRows * kInputs, 1), w = numbers(kOutputs * kInputs, 2);
    const Floats whole = ProjectionRunner({kInputs, kOutputs, dtype, Dtype::f32}).forward(x, w);
    for (std::int64_t first = 0; first < kOutputs; first += kTile) {
      const std::int64_t count = std::min(kTile, kOutputs - first);
      const Floats tile_w(w.begin() + first * kInputs, w.begin() + (first + count) * kInputs);
      const Floats y = ProjectionRunner({kInputs, count, dtype, Dtype::f32}).forward(x, tile_w);
      for (std::int64_t r = 0; r < kRows; ++r)
        for (std::int64_t o = 0; o < count; ++o)
          ASSERT_EQ(y[static_cast<std::size_t>(r * count + o)],
                    whole[static_cast<std::size_t>(r * kOutputs + first + o)]);
    }
  }
}

// What scratch there is fits a second-level cache or two, or is one more sum of the weights.
TEST(Projection, ScratchIsSmall) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    const ProjectionPlan& plan = backend()->projection({1024, 1024, dtype, dtype}).plan();
    for (const std::int64_t bytes : {plan.forward_scratch, plan.backward_data_scratch,
                                     plan.backward_weights_scratch - plan.gradient.bytes()})
      EXPECT_LE(bytes, 2 << 20);
  }
}

}  // namespace
}  // namespace memfloor::testing

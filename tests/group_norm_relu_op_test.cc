// Group norm + ReLU against its formula in double, finite differences and PyTorch; and what batch
// norm cannot promise: an image's bits do not depend on the others.
#include "tests/op_testing.h"
#include "tests/reference_net.h"
#include "tests/temporary_folder.h"

namespace memfloor::testing {
namespace {

struct GroupNormCase {
  GroupNormReluDescriptor d;
};
void PrintTo(const GroupNormCase& c, std::ostream* out) {
  *out << c.d.images << 'x' << c.d.height << 'x' << c.d.width << 'x' << c.d.channels << " in "
       << c.d.groups << " groups, " << name_of(c.d.dtype);
}

// The op on numbers of its dtype; all tensors are NHWC.
struct GroupNormRunner {
  struct Forward {
    Floats y, statistics;
  };
  struct Backward {
    Floats dx, dgamma, dbeta;
  };

  Forward forward(const Floats& x, const Floats& gamma, const Floats& beta) const {
    const Buffer in(x, d.dtype), statistics(d.images * 2 * d.groups * 4);
    const Buffer y(size() * static_cast<std::int64_t>(size_of(d.dtype)));
    const Buffer scratch(op.plan().forward_scratch);
    op.forward(in.data(), gamma.data(), beta.data(), y.data(), statistics.floats(), scratch.data());
    return {y.read(d.dtype), statistics.read()};
  }
  // dx lies in dy's place, or in `before`, which it is added to.
  Backward backward(const Floats& x, const Floats& gamma, const Forward& f, const Floats& dy,
                    const Floats* before = nullptr) const {
    const Buffer in(x, d.dtype), y(f.y, d.dtype), gradient(dy, d.dtype);
    const Buffer other(before ? *before : Floats{}, d.dtype), scratch(op.plan().backward_scratch);
    const Buffer& dx = before ? other : gradient;
    Backward b{{}, Floats(gamma.size()), Floats(gamma.size())};
    op.backward(in.data(), y.data(), f.statistics.data(), gamma.data(), gradient.data(), dx.data(),
                before != nullptr, b.dgamma.data(), b.dbeta.data(), scratch.data());
    b.dx = dx.read(d.dtype);
    return b;
  }
  std::int64_t size() const { return d.images * image_size(); }
  std::int64_t image_size() const { return d.pixels() * d.channels; }

  GroupNormReluDescriptor d;
  std::shared_ptr<Backend> on = backend();
  const GroupNormRelu& op = on->group_norm_relu(d);
};

class GroupNormReluOp : public ::testing::TestWithParam<GroupNormCase> {
 protected:
  const GroupNormReluDescriptor d = GetParam().d;
  const GroupNormRunner run{d};
  // Two clusters, so that after normalisation no value is near the ReLU's kink.
  const Floats x = [this] {
    Floats values = numbers(run.size(), 1);
    for (float& v : values) v = 2 + (v < 0 ? -1 : 1) + v / 4;
    return rounded(values, d.dtype);
  }();
  const Floats gamma = filled(Fill{2, 1, 0.125f}, static_cast<std::size_t>(d.channels));
  const Floats beta = numbers(d.channels, 3, 0.125f);
  const Floats dy = rounded(numbers(run.size(), 4), d.dtype);
};

class GroupNormReluGradient : public GroupNormReluOp {};

TEST_P(GroupNormReluOp, IsTheFormula) {
  const std::int64_t group_channels = d.channels / d.groups;
  const auto count = static_cast<double>(group_channels * d.pixels());
  const GroupNormRunner::Forward f = run.forward(x, gamma, beta);
  Doubles y(x.size()), dx(x.size()), dgamma(gamma.size()), dbeta(gamma.size());
  for (std::int64_t n = 0; n < d.images; ++n)
    for (std::int64_t g = 0; g < d.groups; ++g) {
      // body(element, channel) for the group's elements.
      const auto each = [&](auto&& body) {
        for (std::int64_t p = 0; p < d.pixels(); ++p)
          for (std::int64_t c = g * group_channels; c < (g + 1) * group_channels; ++c)
            body(static_cast<std::size_t>(n * run.image_size() + p * d.channels + c),
                 static_cast<std::size_t>(c));
      };
      double mean = 0, squares = 0, sum = 0, product = 0;
      each([&](std::size_t i, std::size_t) { mean += x[i] / count; });
      each([&](std::size_t i, std::size_t) { squares += (x[i] - mean) * (x[i] - mean); });
      const double inverse = 1 / std::sqrt(squares / count + GroupNormRelu::kEpsilon);
      EXPECT_NEAR(f.statistics[(2 * n) * d.groups + g], mean, 1e-6 * std::abs(mean));
      EXPECT_NEAR(f.statistics[(2 * n + 1) * d.groups + g], inverse, 1e-6 * inverse);
      each([&](std::size_t i, std::size_t c) {
        const double normal = (x[i] - mean) * inverse;
        y[i] = std::max(0.0, normal * gamma[c] + beta[c]);
        const double masked = y[i] > 0 ? dy[i] : 0;
        dbeta[c] += masked, dgamma[c] += masked * normal;
        sum += masked * gamma[c], product += masked * gamma[c] * normal;
      });
      each([&](std::size_t i, std::size_t c) {
        const double normal = (x[i] - mean) * inverse, masked = y[i] > 0 ? dy[i] : 0;
        dx[i] = inverse * (masked * gamma[c] - sum / count - normal * product / count);
      });
    }
  const double tolerance = d.dtype == Dtype::f32 ? 1e-6 : d.dtype == Dtype::f16 ? 4e-4 : 3e-3;
  EXPECT_LE(distance(f.y, y), tolerance);
  const GroupNormRunner::Backward b = run.backward(x, gamma, f, dy);
  EXPECT_LE(distance(b.dx, dx), tolerance);
  EXPECT_LE(distance(b.dgamma, dgamma), 2e-6);
  EXPECT_LE(distance(b.dbeta, dbeta), 2e-6);

  const Floats before = rounded(numbers(run.size(), 5), d.dtype);
  const GroupNormRunner::Backward added = run.backward(x, gamma, f, dy, &before);
  for (std::size_t i = 0; i < dx.size(); ++i) dx[i] += before[i];
  EXPECT_LE(distance(added.dx, dx), tolerance);
  EXPECT_EQ(added.dgamma, b.dgamma);
  EXPECT_EQ(added.dbeta, b.dbeta);
}

TEST_P(GroupNormReluGradient, IsAFiniteDifference) {
  const GroupNormRunner::Backward b = run.backward(x, gamma, run.forward(x, gamma, beta), dy);
  const auto loss = [&](const Floats& x_, const Floats& gamma_, const Floats& beta_) {
    return dot(dy, run.forward(x_, gamma_, beta_).y);
  };
  expect_derivative([&](const Floats& at) { return loss(at, gamma, beta); }, x, b.dx, 0x1p-5f, 1e-5,
                    "x");
  expect_derivative([&](const Floats& at) { return loss(x, at, beta); }, gamma, b.dgamma, 0x1p-4f,
                    1e-5, "gamma");
  expect_derivative([&](const Floats& at) { return loss(x, gamma, at); }, beta, b.dbeta, 0x1p-4f,
                    1e-5, "beta");
}

TEST_P(GroupNormReluOp, AnImagesBitsDoNotDependOnTheOthers) {
  const GroupNormRunner::Forward together = run.forward(x, gamma, beta);
  const GroupNormRunner::Backward gradients = run.backward(x, gamma, together, dy);
  GroupNormReluDescriptor one = d;
  one.images = 1;
  const GroupNormRunner alone{one};
  for (std::int64_t n = 0; n < d.images; ++n) {
    const auto part = [&](const Floats& whole, std::int64_t size) {
      return Floats(whole.begin() + n * size, whole.begin() + (n + 1) * size);
    };
    const Floats image = part(x, alone.size());
    const GroupNormRunner::Forward f = alone.forward(image, gamma, beta);
    EXPECT_EQ(f.y, part(together.y, alone.size())) << "image " << n;
    EXPECT_EQ(f.statistics, part(together.statistics, 2 * d.groups)) << "image " << n;
    EXPECT_EQ(alone.backward(image, gamma, f, part(dy, alone.size())).dx,
              part(gradients.dx, alone.size()))
        << "image " << n;
  }
}

TEST_P(GroupNormReluOp, ResultsDoNotDependOnThreads) {
  const GroupNormRunner::Forward f = run.forward(x, gamma, beta);
  const GroupNormRunner::Backward b = run.backward(x, gamma, f, dy);
  for (const int threads : {1, 5}) {
    const GroupNormRunner other{d, make_cpu_backend(threads)};
    const GroupNormRunner::Forward g = other.forward(x, gamma, beta);
    const GroupNormRunner::Backward h = other.backward(x, gamma, g, dy);
    EXPECT_EQ(g.y, f.y);
    EXPECT_EQ(h.dx, b.dx);
    EXPECT_EQ(h.dgamma, b.dgamma);
    EXPECT_EQ(h.dbeta, b.dbeta);
  }
}

std::vector<GroupNormCase> group_norm_cases(Dtype dtype) {
  return {{{4, 6, 6, 16, 2, dtype}},
          {{3, 7, 5, 33, 3, dtype}},
          {{2, 9, 9, 5, 1, dtype}},
          {{5, 4, 4, 112, 14, dtype}},
          {{6, 8, 8, 64, 64, dtype}}};
}
INSTANTIATE_TEST_SUITE_P(F32, GroupNormReluOp, ::testing::ValuesIn(group_norm_cases(Dtype::f32)));
INSTANTIATE_TEST_SUITE_P(F16, GroupNormReluOp, ::testing::ValuesIn(group_norm_cases(Dtype::f16)));
INSTANTIATE_TEST_SUITE_P(Bf16, GroupNormReluOp, ::testing::ValuesIn(group_norm_cases(Dtype::bf16)));
INSTANTIATE_TEST_SUITE_P(, GroupNormReluGradient,
                         ::testing::ValuesIn(group_norm_cases(Dtype::f32)));

TEST(GroupNormRelu, RefusesUnequalGroups) {
  const std::string refusal = error_of<Error>([] {
    backend()->group_norm_relu({1, 4, 4, 16, 3, Dtype::f32});
  });
  EXPECT_NE(refusal.find("16 channels are not 3 equal groups"), std::string::npos) << refusal;
}

// ---- PyTorch's answers

class GroupNormReference : public ::testing::TestWithParam<GroupNormCase> {};

TEST_P(GroupNormReference, ForwardAndBackward) {
  const GroupNormRunner run{GetParam().d};
  const GroupNormReluDescriptor& d = run.d;
  const Dump dump("group_norm", concat('n', d.images, "_c", d.channels, '_', d.height, 'x', d.width,
                                       "_g", d.groups, '.'));
  const auto nhwc = [&](const char* name) {
    return channels_last(dump.input(name), d.images, d.channels);
  };
  const Floats x = nhwc("input"), gamma = dump.input("weight");
  const GroupNormRunner::Forward f = run.forward(x, gamma, dump.input("bias"));
  const GroupNormRunner::Backward b = run.backward(x, gamma, f, nhwc("output_grad"));
  const auto nchw = [&](const Floats& ours) { return channels_first(ours, d.images, d.channels); };
  EXPECT_LE(dump.answer("output").distance_of(nchw(f.y)), 1e-6);
  EXPECT_LE(dump.answer("input.grad").distance_of(nchw(b.dx)), 1e-6);
  EXPECT_LE(dump.answer("weight.grad").distance_of(b.dgamma), 1e-6);
  EXPECT_LE(dump.answer("bias.grad").distance_of(b.dbeta), 1e-6);
}
INSTANTIATE_TEST_SUITE_P(, GroupNormReference,
                         ::testing::Values(GroupNormCase{{2, 5, 3, 16, 2}},
                                           GroupNormCase{{3, 4, 4, 32, 4}},
                                           GroupNormCase{{2, 5, 6, 24, 3}},
                                           GroupNormCase{{1, 4, 4, 64, 1}}));

}  // namespace
}  // namespace memfloor::testing

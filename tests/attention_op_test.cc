// Attention against its formula in double, finite differences and PyTorch.
#include "tests/reference_net.h"
#include "tests/sequence_testing.h"

namespace memfloor::testing {
namespace {

struct Inputs {
  Floats q, k, v;
};

struct AttentionRunner {
  struct Forward {
    Floats probabilities, y;
  };

  Forward forward(const Sequences& queries, const Sequences& keys, const Dropout& dropout,
                  const Inputs& in) const {
    const Buffer q(in.q, d.dtype), k(in.k, d.dtype), v(in.v, d.dtype);
    const Buffer probabilities(bytes_of(op.probabilities(queries, keys), d.dtype));
    const Buffer y(bytes_of(queries.rows() * d.channels, d.dtype));
    const Buffer scratch(op.forward_scratch(queries, keys));
    op.forward(queries, keys, dropout, q.data(), k.data(), v.data(), probabilities.data(), y.data(),
               scratch.data());
    return {probabilities.read(d.dtype), y.read(d.dtype)};
  }
  // dq lies in dy's place.
  Inputs backward(const Sequences& queries, const Sequences& keys, const Dropout& dropout,
                  const Inputs& in, const Floats& kept, const Floats& dy) const {
    const Buffer q(in.q, d.dtype), k(in.k, d.dtype), v(in.v, d.dtype), dq(dy, d.dtype);
    const Buffer probabilities(kept, d.dtype), scratch(op.backward_scratch(queries, keys));
    const Buffer dk(bytes_of(keys.rows() * d.channels, d.dtype));
    const Buffer dv(bytes_of(keys.rows() * d.channels, d.dtype));
    op.backward(queries, keys, dropout, q.data(), k.data(), v.data(), probabilities.data(),
                dq.data(), dq.data(), dk.data(), dv.data(), scratch.data());
    return {dq.read(d.dtype), dk.read(d.dtype), dv.read(d.dtype)};
  }

  AttentionDescriptor d;
  std::shared_ptr<Backend> on = backend();
  const Attention& op = on->attention(d);
};

struct AttentionCase {
  AttentionDescriptor d;
};
void PrintTo(const AttentionCase& c, std::ostream* out) {
  *out << c.d.channels << " channels, " << c.d.heads << " heads, " << name_of(c.d.dtype);
}

class AttentionOp : public ::testing::TestWithParam<AttentionCase> {
 protected:
  const AttentionDescriptor d = GetParam().d;
  const AttentionRunner run{d};
  const Sequences queries = sentences({5, 1, 22, 3}), keys = sentences({2, 7, 37, 1});
  const Inputs in{rounded(numbers(queries.rows() * d.channels, 1, 2), d.dtype),
                  rounded(numbers(keys.rows() * d.channels, 2, 2), d.dtype),
                  rounded(numbers(keys.rows() * d.channels, 3), d.dtype)};
  const Floats dy = rounded(numbers(queries.rows() * d.channels, 4), d.dtype);
};
class AttentionGradient : public AttentionOp {};

TEST_P(AttentionOp, IsTheFormula) {
  const std::int64_t width = d.channels / d.heads;
  const double scale = 1 / std::sqrt(static_cast<double>(width));
  for (const Dropout& dropout : {Dropout{}, kDropout}) {
    Doubles probabilities, y(in.q.size()), dq(in.q.size()), dk(in.k.size()), dv(in.v.size());
    for (std::int64_t i = 0; i < queries.count(); ++i)
      for (std::int64_t h = 0; h < d.heads; ++h)
        for (std::int64_t t = 0; t < queries.length(i); ++t) {
          const std::int64_t sources = keys.length(i);
          const auto at = [&](const Sequences& of, std::int64_t position, std::int64_t c) {
            return static_cast<std::size_t>((of.first_row[i] + position) * d.channels + h * width +
                                            c);
          };
          Doubles p(static_cast<std::size_t>(sources)), factor(p.size()), dp(p.size());
          double total = 0, product = 0;
          for (std::size_t s = 0; s < p.size(); ++s) {
            const auto source = static_cast<std::int64_t>(s);
            for (std::int64_t c = 0; c < width; ++c) {
              p[s] += scale * in.q[at(queries, t, c)] * in.k[at(keys, source, c)];
              dp[s] += static_cast<double>(dy[at(queries, t, c)]) * in.v[at(keys, source, c)];
            }
            total += p[s] = std::exp(p[s]);
            factor[s] = dropout_factor(dropout, i, t, h * sources + source);
          }
          for (std::size_t s = 0; s < p.size(); ++s) {
            p[s] /= total;
            probabilities.push_back(p[s]);
            product += p[s] * dp[s] * factor[s];
          }
          for (std::size_t s = 0; s < p.size(); ++s)
            for (std::int64_t c = 0; c < width; ++c) {
              const std::size_t query = at(queries, t, c);
              const std::size_t key = at(keys, static_cast<std::int64_t>(s), c);
              const double score = scale * p[s] * (dp[s] * factor[s] - product);
              y[query] += p[s] * factor[s] * in.v[key];
              dv[key] += p[s] * factor[s] * dy[query];
              dq[query] += score * in.k[key];
              dk[key] += score * in.q[query];
            }
        }
    const AttentionRunner::Forward f = run.forward(queries, keys, dropout, in);
    const Inputs g = run.backward(queries, keys, dropout, in, f.probabilities, dy);
    const double tolerance = 2e-6 + 2 * unit_of(d.dtype);
    EXPECT_LE(distance(f.probabilities, probabilities), tolerance);
    EXPECT_LE(distance(f.y, y), tolerance);
    EXPECT_LE(distance(g.q, dq), tolerance);
    EXPECT_LE(distance(g.k, dk), tolerance);
    EXPECT_LE(distance(g.v, dv), tolerance);
  }
}

TEST_P(AttentionGradient, IsAFiniteDifference) {
  const auto loss = [&](const Inputs& at) {
    return dot(dy, run.forward(queries, keys, kDropout, at).y);
  };
  const Inputs g = run.backward(queries, keys, kDropout, in,
                                run.forward(queries, keys, kDropout, in).probabilities, dy);
  expect_derivative(
      [&](const Floats& at) {
        return loss({at, in.k, in.v});
      },
      in.q, g.q, 0x1p-4f, 1e-5, "q");
  expect_derivative(
      [&](const Floats& at) {
        return loss({in.q, at, in.v});
      },
      in.k, g.k, 0x1p-4f, 1e-5, "k");
  expect_derivative(
      [&](const Floats& at) {
        return loss({in.q, in.k, at});
      },
      in.v, g.v, 0x1p-4f, 1e-5, "v");
}

TEST_P(AttentionOp, ASentencesBitsDoNotDependOnTheOthers) {
  const AttentionRunner::Forward f = run.forward(queries, keys, kDropout, in);
  const Inputs g = run.backward(queries, keys, kDropout, in, f.probabilities, dy);
  for (std::int64_t i = 0; i < queries.count(); ++i) {
    const auto target = [&](const Floats& all) { return sentence_of(all, queries, i, d.channels); };
    const auto source = [&](const Floats& all) { return sentence_of(all, keys, i, d.channels); };
    const Sequences to = sentences({queries.length(i)}), from = sentences({keys.length(i)});
    const Dropout dropout = moved(kDropout, i);
    const Inputs alone{target(in.q), source(in.k), source(in.v)};
    const AttentionRunner::Forward e = run.forward(to, from, dropout, alone);
    const Inputs h = run.backward(to, from, dropout, alone, e.probabilities, target(dy));
    EXPECT_EQ(e.y, target(f.y)) << i;
    EXPECT_EQ(h.q, target(g.q)) << i;
    EXPECT_EQ(h.k, source(g.k)) << i;
    EXPECT_EQ(h.v, source(g.v)) << i;
  }
}

TEST_P(AttentionOp, ResultsDoNotDependOnThreads) {
  const AttentionRunner::Forward f = run.forward(queries, keys, kDropout, in);
  const Inputs g = run.backward(queries, keys, kDropout, in, f.probabilities, dy);
  for (const int threads : {1, 5}) {
    const AttentionRunner other{d, make_cpu_backend(threads)};
    const AttentionRunner::Forward e = other.forward(queries, keys, kDropout, in);
    const Inputs h = other.backward(queries, keys, kDropout, in, e.probabilities, dy);
    EXPECT_EQ(e.probabilities, f.probabilities);
    EXPECT_EQ(e.y, f.y);
    EXPECT_EQ(h.q, g.q);
    EXPECT_EQ(h.k, g.k);
    EXPECT_EQ(h.v, g.v);
  }
}

std::vector<AttentionCase> attention_cases(Dtype dtype) {
  return {{{512, 4, dtype}}, {{30, 2, dtype}}, {{40, 1, dtype}}};
}
INSTANTIATE_TEST_SUITE_P(F32, AttentionOp, ::testing::ValuesIn(attention_cases(Dtype::f32)));
INSTANTIATE_TEST_SUITE_P(F16, AttentionOp, ::testing::ValuesIn(attention_cases(Dtype::f16)));
INSTANTIATE_TEST_SUITE_P(Bf16, AttentionOp, ::testing::ValuesIn(attention_cases(Dtype::bf16)));
INSTANTIATE_TEST_SUITE_P(, AttentionGradient, ::testing::ValuesIn(attention_cases(Dtype::f32)));

TEST(Attention, RefusesUnequalHeadsAndUnpairedSentences) {
  EXPECT_THROW(backend()->attention({16, 3}), Error);
  const AttentionRunner run{{16, 2}};
  const Inputs in{Floats(48), Floats(48), Floats(48)};
  EXPECT_THROW(run.forward(sentences({3}), sentences({1, 2}), {}, in), Error);
}

// The row of one query does not depend on which queries are beside it: decoding one position at a
// time attends as all positions together do.
TEST(Attention, AQueryAttendsAlone) {
  const AttentionRunner run{{64, 4}};
  const Sequences keys = sentences({11});
  const Inputs in{numbers(9 * 64, 1), numbers(11 * 64, 2), numbers(11 * 64, 3)};
  const Floats together = run.forward(sentences({9}), keys, {}, in).y;
  for (std::int64_t t = 0; t < 9; ++t) {
    const Inputs alone{rows_of(in.q, t, t + 1, 64), in.k, in.v};
    EXPECT_EQ(run.forward(sentences({1}), keys, {}, alone).y, rows_of(together, t, t + 1, 64)) << t;
  }
}

// ---- PyTorch's answers

TEST(AttentionReference, ForwardAndBackward) {
  const AttentionRunner run{{16, 2}};
  const Sequences queries = sentences({1, 4, 9, 2, 20}), keys = sentences({3, 1, 12, 7, 17});
  const Dump dump("sequence_ops", "attention.");
  const Inputs in{dump.input("q"), dump.input("k"), dump.input("v")};
  const AttentionRunner::Forward f = run.forward(queries, keys, {}, in);
  const Inputs g = run.backward(queries, keys, {}, in, f.probabilities, dump.input("output_grad"));
  EXPECT_LE(dump.answer("output").distance_of(f.y), 1e-6);
  EXPECT_LE(dump.answer("q.grad").distance_of(g.q), 1e-6);
  EXPECT_LE(dump.answer("k.grad").distance_of(g.k), 1e-6);
  EXPECT_LE(dump.answer("v.grad").distance_of(g.v), 1e-6);
}

}  // namespace
}  // namespace memfloor::testing

// Dropout's masks: functions of the run's seed, the minibatch, the sentence, the position, the
// column and the site, and of nothing else.
#include "tests/sequence_testing.h"

namespace memfloor::testing {
namespace {

// The factors of whole rows: dropout of ones.
Floats factors(const Sequences& s, const Dropout& dropout, std::int64_t columns,
               Backend& on = *backend()) {
  Floats ones(static_cast<std::size_t>(s.rows() * columns), 1.0f);
  on.sequence_ops().dropout(s, dropout, columns, Dtype::f32, ones.data(), ones.data());
  return ones;
}

TEST(Dropout, IsTheFormula) {
  const Sequences s = sentences({3, 1, 40, 7});
  for (const std::int64_t columns : {1, 12, 16, 124, 128, 129, 512, 700}) {
    const Floats drawn = factors(s, kDropout, columns);
    each_row(s, [&](std::int64_t row, std::int64_t i, std::int64_t t) {
      for (std::int64_t c = 0; c < columns; ++c)
        ASSERT_EQ(drawn[static_cast<std::size_t>(row * columns + c)],
                  static_cast<float>(dropout_factor(kDropout, i, t, c)))
            << "sentence " << i << ", position " << t << ", column " << c << " of " << columns;
    });
  }
}

TEST(Dropout, IsOffAtProbabilityZero) {
  const Sequences s = sentences({3, 9});
  EXPECT_EQ(factors(s, {}, 40), Floats(12 * 40, 1.0f));
}

TEST(Dropout, KeepsTheStatedShare) {
  const Sequences s = sentences({60, 140});
  for (const float p : {0.01f, 0.1f, 0.3f, 0.5f, 0.9f}) {
    Dropout dropout = kDropout;
    dropout.probability = p;
    const Floats drawn = factors(s, dropout, 512);
    const auto count = static_cast<double>(drawn.size());
    const auto kept = static_cast<double>(
        std::count_if(drawn.begin(), drawn.end(), [&](float f) { return f == 1 / (1 - p); }));
    EXPECT_EQ(kept + static_cast<double>(std::count(drawn.begin(), drawn.end(), 0.0f)), count);
    EXPECT_NEAR(kept, count * (1 - p), 5 * std::sqrt(count * p * (1 - p)));
  }
}

// Two independent masks agree in a share p^2 + (1 - p)^2 of their elements.
TEST(Dropout, MasksOfDifferentNamesAreIndependent) {
  const Sequences s = sentences({80, 80});
  constexpr std::int64_t kColumns = 512;
  const Floats base = factors(s, kDropout, kColumns);
  const auto expect_independent = [&](const Floats& other, std::size_t shift, const char* what) {
    const double p = kDropout.probability, share = p * p + (1 - p) * (1 - p);
    const auto count = static_cast<double>(other.size() - shift);
    double equal = 0;
    for (std::size_t i = shift; i < other.size(); ++i) equal += base[i - shift] == other[i];
    EXPECT_NEAR(equal, count * share, 5 * std::sqrt(count * share * (1 - share))) << what;
  };
  Dropout other = kDropout;
  other.seed = 8, expect_independent(factors(s, other, kColumns), 0, "seed");
  other = kDropout, other.minibatch = 42;
  expect_independent(factors(s, other, kColumns), 0, "minibatch");
  other = kDropout, other.first_sentence = 6;
  expect_independent(factors(s, other, kColumns), 0, "sentence");
  other = kDropout, other.site = 20;
  expect_independent(factors(s, other, kColumns), 0, "site");
  for (const std::size_t shift : {1, 15, 16, 17, 32, 128, 512, 80 * 512})
    expect_independent(base, shift, "neighbour");
}

TEST(Dropout, MasksDoNotDependOnHowTheMinibatchIsCut) {
  const Sequences s = sentences({3, 17, 1, 40, 7});
  constexpr std::int64_t kColumns = 300;
  const Floats whole = factors(s, kDropout, kColumns);
  for (std::int64_t i = 0; i < s.count(); ++i)
    EXPECT_EQ(factors(sentences({s.length(i)}), moved(kDropout, i), kColumns),
              sentence_of(whole, s, i, kColumns));
}

TEST(Dropout, MasksDoNotDependOnThreads) {
  const Sequences s = sentences({3, 17, 1, 40, 7});
  const Floats two = factors(s, kDropout, 300);
  for (const int threads : {1, 5})
    EXPECT_EQ(factors(s, kDropout, 300, *make_cpu_backend(threads)), two);
}

TEST(Dropout, RefusesWhatItCannotDraw) {
  const Sequences s = sentences({3});
  Dropout all = kDropout, far = kDropout;
  all.probability = 1, far.site = 1 << 12;
  EXPECT_THROW(factors(s, all, 4), Error);
  EXPECT_THROW(factors(s, far, 4), Error);
}

}  // namespace
}  // namespace memfloor::testing

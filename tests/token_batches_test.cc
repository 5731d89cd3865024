// Batches by tokens: what fairseq's rule makes, and what depends on seed and epoch.
#include "data_loaders/token_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "tests/temporary_folder.h"

namespace memfloor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Lengths = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// Pairs of given lengths (source, target); the tokens do not matter here.
class LengthsOnly final : public TranslationCorpus {
 public:
  explicit LengthsOnly(Lengths lengths) : lengths_(std::move(lengths)) {}
  std::int64_t size(Split) const override { return static_cast<std::int64_t>(lengths_.size()); }
  std::int64_t vocabulary(Side) const override { return 5; }
  std::int64_t length(Split, Side side, std::int64_t index) const override {
    const auto& [source, target] = lengths_[static_cast<std::size_t>(index)];
    return side == Side::source ? source : target;
  }
  void read(Split, Side, std::int64_t, std::int32_t*) const override {}
  std::string word(Side, std::int32_t) const override { return ""; }
  std::vector<std::string> references(Split) const override { return {}; }
  nlohmann::json provenance() const override { return {}; }

 private:
  Lengths lengths_;
};

using Batches = std::vector<std::vector<std::int32_t>>;

Batches all(const TokenBatches& batches) {
  Batches result;
  for (std::int64_t b = 0; b < batches.count(); ++b)
    result.emplace_back(batches.sentences(b).begin(), batches.sentences(b).end());
  return result;
}

std::vector<std::int64_t> order(const TokenBatches& batches, std::uint32_t epoch) {
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < batches.count(); ++i) result.push_back(batches.batch_at(epoch, i));
  return result;
}

std::vector<std::size_t> sizes(const TokenBatches& batches) {
  std::vector<std::size_t> result;
  for (const auto& batch : all(batches)) result.push_back(batch.size());
  return result;
}

TEST(TokenBatches, HoldEveryPairOnceWithinTheLimit) {
  const auto corpus = make_synthetic_translation(1);
  for (const std::int64_t limit : {4000, 500, 60}) {
    const auto batches = TokenBatches::shuffled(*corpus, Split::train, 7, {.max_tokens = limit});
    std::vector<int> seen(20000);
    std::int64_t odd = 0;
    for (std::int64_t b = 0; b < batches.count(); ++b) {
      BatchTotals totals;
      const auto sentences = batches.sentences(b);
      for (const std::int32_t index : sentences) {
        ++seen[static_cast<std::size_t>(index)];
        const std::int64_t source = corpus->length(Split::train, Side::source, index);
        const std::int64_t target = corpus->length(Split::train, Side::target, index);
        totals.source_tokens += source, totals.target_tokens += target;
        totals.longest_source = std::max(totals.longest_source, source);
        totals.longest_target = std::max(totals.longest_target, target);
      }
      const std::int64_t longest = std::max(totals.longest_source, totals.longest_target);
      const auto count = static_cast<std::int64_t>(sentences.size());
      ASSERT_LE(count * longest, limit) << b;
      odd += count > 8 && count % 8 != 0;
      EXPECT_EQ(batches.totals(b).source_tokens, totals.source_tokens);
      EXPECT_EQ(batches.totals(b).target_tokens, totals.target_tokens);
      EXPECT_EQ(batches.totals(b).longest_source, totals.longest_source);
      EXPECT_EQ(batches.totals(b).longest_target, totals.longest_target);
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), 20000 - batches.skipped()) << limit;
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 0), batches.skipped());
    EXPECT_EQ(batches.skipped(), 0);
    EXPECT_LE(odd, 1) << "only the last batch need not be a multiple of 8";
  }
}

// Worked by hand from fairseq's batch_by_size() with required_batch_size_multiple 8.
TEST(TokenBatches, AreCutAsByFairseq) {
  // 13 pairs of 10 fit into 130 tokens: 8 are taken twice, and then there is nothing to come.
  EXPECT_THAT(sizes(TokenBatches::in_order(LengthsOnly(Lengths(29, {10, 10})), Split::train,
                                           {.max_tokens = 130})),
              ElementsAre(8, 8, 13));
  // Below 8 nothing is given back.
  EXPECT_THAT(sizes(TokenBatches::in_order(LengthsOnly(Lengths(12, {10, 10})), Split::train,
                                           {.max_tokens = 50})),
              ElementsAre(5, 5, 2));
  EXPECT_THAT(sizes(TokenBatches::in_order(LengthsOnly(Lengths(40, {10, 10})), Split::train,
                                           {.max_tokens = 1000, .max_sentences = 16})),
              ElementsAre(16, 16, 8));
  // The longer side counts, and so does a longest sentence in the middle.
  EXPECT_THAT(sizes(TokenBatches::in_order(LengthsOnly({{2, 9}, {3, 3}, {4, 4}, {5, 5}, {5, 9}}),
                                           Split::train, {.max_tokens = 36})),
              ElementsAre(4, 1));
  // What a batch gives back may be too much for the next, longer sentence: 15 pairs of 4 leave 7
  // that no pair of 60 can join.
  Lengths lengths(15, {4, 4});
  lengths.push_back({60, 60});
  EXPECT_THAT(sizes(TokenBatches::in_order(LengthsOnly(lengths), Split::train, {.max_tokens = 60})),
              ElementsAre(8, 7, 1));
}

TEST(TokenBatches, AreSortedBySourceThenTarget) {
  const LengthsOnly corpus({{5, 2}, {2, 9}, {5, 1}, {2, 3}, {2, 9}});
  EXPECT_EQ(all(TokenBatches::in_order(corpus, Split::test, {})), (Batches{{3, 1, 4, 2, 0}}));
  EXPECT_THAT(order(TokenBatches::in_order(corpus, Split::test, {.max_sentences = 1}), 3),
              ElementsAre(0, 1, 2, 3, 4));
}

TEST(TokenBatches, DependOnSeedAndEpochAlone) {
  const auto corpus = make_synthetic_translation(1);
  const auto make = [&](std::uint32_t seed) {
    return TokenBatches::shuffled(*corpus, Split::train, seed, {});
  };
  const TokenBatches batches = make(7), again = make(7), other = make(8);
  EXPECT_EQ(all(batches), all(again));
  EXPECT_NE(all(batches), all(other));
  // Asked in another order of epochs.
  const auto second = order(again, 2), first = order(again, 1);
  EXPECT_EQ(order(batches, 1), first);
  EXPECT_EQ(order(batches, 2), second);
  EXPECT_NE(first, second);
  for (auto epoch : {first, second}) {
    std::ranges::sort(epoch);
    std::vector<std::int64_t> every(epoch.size());
    std::iota(every.begin(), every.end(), 0);
    EXPECT_EQ(epoch, every);
  }
  EXPECT_NE(order(other, 1), first);
}

TEST(TokenBatches, PairsThatAreTooLongAreSkippedAndTold) {
  const LengthsOnly corpus({{5, 5}, {5, 31}, {30, 5}, {40, 40}});
  const auto all_short = TokenBatches::in_order(corpus, Split::train, {.max_tokens = 40});
  EXPECT_EQ(all_short.skipped(), 0);
  EXPECT_EQ(all_short.skipped_note(), "");
  const auto by_tokens = TokenBatches::shuffled(corpus, Split::train, 1, {.max_tokens = 39});
  EXPECT_EQ(by_tokens.skipped_note(), "1 pair of sentences longer than 39 tokens is skipped");
  const auto by_length = TokenBatches::in_order(corpus, Split::train, {.longest = 30});
  EXPECT_EQ(by_length.skipped(), 2);
  EXPECT_EQ(by_length.skipped_note(), "2 pairs of sentences longer than 30 tokens are skipped");
  EXPECT_EQ(all(by_length), (Batches{{0, 2}}));
  EXPECT_THAT(error_of<InputError>(
                  [&] { TokenBatches::in_order(corpus, Split::train, {.max_tokens = 4}); }),
              HasSubstr("all 4 pairs of sentences are longer than 4 tokens"));
}

}  // namespace
}  // namespace memfloor

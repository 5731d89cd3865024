// Beam search against what it stands for: greedy choice with a beam of one, all sequences of a tiny
// language with a beam that drops none.
#include "suite/beam_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "data_loaders/translation.h"
#include "tests/small_translator.h"

namespace memfloor::testing {
namespace {

using Words = std::vector<std::int32_t>;
using Options = SmallTranslator::Options;

// Six entries: the special ones, of which all but padding may be written, and two words.
DynamicConvConfig tiny_language() {
  DynamicConvConfig config = small_config();
  config.target_vocabulary = 6;
  return config;
}

Options with(const DynamicConvConfig& config, std::uint32_t seed) {
  Options options;
  options.config = config, options.seed = seed;
  return options;
}

std::vector<Translation> search(SmallTranslator& net, const SentencePairs& pairs,
                                const BeamOptions& options) {
  std::vector<Translation> translations;
  net.in_evaluation([&](Context& context) {
    const ByteSplit before = context.ledger.live();
    translations = beam_search(context, net.model(),
                               make_text(pairs.source, pairs.source_tokens.data()), options);
    EXPECT_EQ(context.ledger.live(), before);
  });
  return translations;
}

// log p of every entry after every row of some texts of the source sentence `number`, from full
// passes: what the decoder reads are the texts with the end mark before them.
std::vector<std::vector<double>> log_likelihoods(SmallTranslator& net, const SentencePairs& pairs,
                                                 std::int64_t number,
                                                 const std::vector<Words>& texts) {
  SentencePairs batch = pairs.chosen(std::vector<std::int64_t>(texts.size(), number));
  std::vector<std::int64_t> lengths;
  batch.target_tokens.clear();
  for (const Words& text : texts) {
    lengths.push_back(static_cast<std::int64_t>(text.size()) + 1);
    batch.target_tokens.push_back(kEnd);
    batch.target_tokens.insert(batch.target_tokens.end(), text.begin(), text.end());
  }
  batch.target = sequences_of(lengths);
  const std::vector<float> logits = net.evaluated(
      [&](Context& context) { return net.model().logits(context, net.run(context, batch)); });
  const auto rows = static_cast<std::size_t>(batch.target->rows());
  const std::size_t entries = logits.size() / rows;
  std::vector<std::vector<double>> all;
  for (std::size_t row = 0; row < rows; ++row) {
    const float* const at = logits.data() + row * entries;
    double sum = 0;
    for (std::size_t v = 0; v < entries; ++v) sum += std::exp(static_cast<double>(at[v]));
    all.emplace_back();
    for (std::size_t v = 0; v < entries; ++v) all.back().push_back(at[v] - std::log(sum));
  }
  return all;
}

// The likeliest word, again and again, each from a full pass over the sentence so far.
Translation greedy(SmallTranslator& net, const SentencePairs& pairs, std::int64_t number,
                   std::int64_t longest) {
  Translation result;
  while (true) {
    std::vector<double> next = log_likelihoods(net, pairs, number, {result.tokens}).back();
    next[kPad] = -std::numeric_limits<double>::infinity();
    const auto length = static_cast<std::int64_t>(result.tokens.size());
    const auto token =
        length == longest
            ? kEnd
            : static_cast<std::int32_t>(std::max_element(next.begin(), next.end()) - next.begin());
    result.score += next[static_cast<std::size_t>(token)];
    if (token == kEnd) break;
    result.tokens.push_back(token);
  }
  result.score /= static_cast<double>(result.tokens.size() + 1);
  return result;
}

TEST(BeamSearch, OfOneIsGreedy) {
  std::int64_t ended_early = 0;
  for (const auto& [config, longest] : {std::pair{small_config(), 5}, {tiny_language(), 12}})
    for (std::uint32_t seed = 1; seed <= 2; ++seed) {
      SmallTranslator net(with(config, seed));
      const SentencePairs pairs = random_pairs(4, config, seed);
      const auto translations = search(net, pairs, {.beam = 1, .longest = longest});
      ASSERT_EQ(translations.size(), 4u);
      for (std::int64_t i = 0; i < 4; ++i) {
        const Translation expected = greedy(net, pairs, i, longest);
        const Translation& found = translations[static_cast<std::size_t>(i)];
        EXPECT_EQ(found.tokens, expected.tokens) << "seed " << seed << ", sentence " << i;
        EXPECT_NEAR(found.score, expected.score, 1e-5);
        ended_early += static_cast<std::int64_t>(found.tokens.size()) < longest;
      }
    }
  EXPECT_GT(ended_early, 0);
}

// Every sequence of at most `longest` words.
std::vector<Words> all_texts(std::int64_t longest) {
  std::vector<Words> texts{{}};
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (static_cast<std::int64_t>(texts[i].size()) == longest) continue;
    for (const std::int32_t word : {kBegin, kUnknown, kFirstWord, kFirstWord + 1}) {
      Words longer = texts[i];
      longer.push_back(word);
      texts.push_back(std::move(longer));
    }
  }
  return texts;
}

TEST(BeamSearch, ThatDropsNothingIsExhaustive) {
  constexpr std::int64_t kLongest = 3, kSentences = 3;
  const std::vector<Words> texts = all_texts(kLongest);
  ASSERT_EQ(texts.size(), 1u + 4 + 16 + 64);
  const double penalties[] = {0, 1, 2.5};
  int differ = 0;  // by the penalty
  for (std::uint32_t seed = 1; seed <= 4; ++seed) {
    SmallTranslator net(with(tiny_language(), seed));
    const SentencePairs pairs = random_pairs(kSentences, tiny_language(), seed);
    std::vector<std::vector<Translation>> found;
    for (const double penalty : penalties)
      found.push_back(
          search(net, pairs, {.beam = 100, .length_penalty = penalty, .longest = kLongest}));
    for (std::int64_t sentence = 0; sentence < kSentences; ++sentence) {
      const auto likelihoods = log_likelihoods(net, pairs, sentence, texts);
      std::vector<Translation> best(3, Translation{{}, -std::numeric_limits<double>::infinity()});
      std::size_t row = 0;
      for (const Words& text : texts) {
        double sum = 0;
        for (const std::int32_t word : text)
          sum += likelihoods[row++][static_cast<std::size_t>(word)];
        sum += likelihoods[row++][kEnd];
        for (std::size_t p = 0; p < 3; ++p) {
          const double score = sum / std::pow(text.size() + 1.0, penalties[p]);
          if (score > best[p].score) best[p] = {text, score};
        }
      }
      for (std::size_t p = 0; p < 3; ++p) {
        const Translation& mine = found[p][static_cast<std::size_t>(sentence)];
        EXPECT_EQ(mine.tokens, best[p].tokens) << "seed " << seed << ", penalty " << penalties[p];
        EXPECT_NEAR(mine.score, best[p].score, 1e-5);
      }
      differ += best[0].tokens != best[2].tokens;
    }
  }
  EXPECT_GT(differ, 2);
}

TEST(BeamSearch, DoesNotDependOnTheSentencesBeside) {
  for (const auto& config : {small_config(), tiny_language()}) {
    SmallTranslator net(with(config, 4));
    const SentencePairs pairs = random_pairs(5, config, 5);
    const BeamOptions options{.longest = 7};
    const auto together = search(net, pairs, options);
    for (std::int64_t i = 0; i < pairs.count(); ++i) {
      const auto alone = search(net, pairs.part(i, 1), options);
      ASSERT_EQ(alone.size(), 1u);
      EXPECT_EQ(together[static_cast<std::size_t>(i)].tokens, alone[0].tokens) << i;
      EXPECT_NEAR(together[static_cast<std::size_t>(i)].score, alone[0].score, 1e-5);
    }
  }
}

// A wider beam may find worse by chance, but not as a rule.
TEST(BeamSearch, FindsBetterThanGreedy) {
  SmallTranslator net(with(small_config(), 2));
  const SentencePairs pairs = random_pairs(12, small_config(), 3);
  double greedy = 0, wide = 0;
  for (const Translation& t : search(net, pairs, {.beam = 1, .longest = 6})) greedy += t.score;
  for (const Translation& t : search(net, pairs, {.beam = 8, .longest = 6})) wide += t.score;
  EXPECT_GT(wide, greedy);
}

TEST(BeamSearch, EndsAtTheLongestLength) {
  SmallTranslator net(with(small_config(), 1));
  const SentencePairs pairs = random_pairs(5, small_config(), 6);
  for (const std::int64_t longest : {0, 1, 4}) {
    std::size_t most = 0;
    for (const Translation& t : search(net, pairs, {.longest = longest}))
      most = std::max(most, t.tokens.size());
    EXPECT_EQ(static_cast<std::int64_t>(most), longest);
  }
}

// Padding's logits are made the highest, which changes every likelihood but no order of words.
TEST(BeamSearch, NeverWritesPadding) {
  SmallTranslator net(with(tiny_language(), 3));
  const SentencePairs pairs = random_pairs(6, tiny_language(), 8);
  const auto likelihoods = log_likelihoods(net, pairs, 0, {{}});
  ParameterStore& store = net.parameters();
  std::vector<std::vector<float>> weights;
  for (std::size_t h = 0; h < store.specs().size(); ++h) {
    const ParameterSpec& spec = store.specs()[h];
    weights.emplace_back(static_cast<std::size_t>(spec.elements()));
    store.read_dense(static_cast<int>(h), weights.back().data());
    if (spec.name != "out.weight") continue;
    const auto best = std::max_element(likelihoods[0].begin(), likelihoods[0].end());
    const auto from = weights.back().begin() + (best - likelihoods[0].begin()) * spec.inputs;
    std::transform(from, from + spec.inputs, weights.back().begin() + kPad * spec.inputs,
                   [](float w) { return 3 * w; });
  }
  store.write_dense([&](ParameterStore::Handle h, float* to) {
    std::ranges::copy(weights[static_cast<std::size_t>(h)], to);
  });
  const auto after = log_likelihoods(net, pairs, 0, {{}});
  ASSERT_EQ(std::max_element(after[0].begin(), after[0].end()) - after[0].begin(), kPad);
  for (const int beam : {1, 4})
    for (const Translation& t : search(net, pairs, {.beam = beam, .longest = 6}))
      EXPECT_EQ(std::ranges::count(t.tokens, kPad), 0);
}

}  // namespace
}  // namespace memfloor::testing

// Incremental decoding equals decoding whole sentences, token by token.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/small_translator.h"

namespace memfloor::testing {
namespace {

using Options = SmallTranslator::Options;

// The logits of every target row, from one pass over whole sentences.
std::vector<float> whole(SmallTranslator& net, const SentencePairs& pairs) {
  return net.evaluated(
      [&](Context& context) { return net.model().logits(context, net.run(context, pairs)); });
}

class DecodingPrecisions : public ::testing::TestWithParam<const char*> {};

// Hypotheses are the target sentences; those that end leave, as in a search.
TEST_P(DecodingPrecisions, EqualsWholeSentences) {
  for (const auto method : {DynamicConvolutionMethod::direct, DynamicConvolutionMethod::band}) {
    Options options;
    options.precision = GetParam(), options.config.method = method;
    SmallTranslator net(options);
    const SentencePairs pairs = random_pairs(5, options.config, 11);
    const std::vector<float> expected = whole(net, pairs);
    const std::int64_t entries = options.config.target_vocabulary;

    net.in_evaluation([&](Context& context) {
      DecoderState state =
          net.model().start_decoding(context, make_text(pairs.source, pairs.source_tokens.data()));
      std::vector<std::int64_t> sentences{0, 1, 2, 3, 4};  // of the hypotheses
      for (std::int64_t position = 0; position < pairs.target->longest(); ++position) {
        std::vector<std::int32_t> remaining;
        std::vector<std::int64_t> left;
        for (std::size_t i = 0; i < sentences.size(); ++i)
          if (position < pairs.target->length(sentences[i])) {
            remaining.push_back(static_cast<std::int32_t>(i));
            left.push_back(sentences[i]);
          }
        if (left.size() < sentences.size()) state.reorder(context, remaining);
        sentences = left;

        std::vector<std::int32_t> tokens;
        for (const std::int64_t sentence : sentences)
          tokens.push_back(pairs.target_tokens[pairs.target->first_row[sentence] + position]);
        const Value logits = net.model().decode(context, state, tokens.data());
        ASSERT_EQ(logits->data.shape()[0], static_cast<std::int64_t>(sentences.size()));
        for (std::size_t i = 0; i < sentences.size(); ++i) {
          const std::int64_t row = pairs.target->first_row[sentences[i]] + position;
          EXPECT_EQ(
              std::memcmp(logits->data.data<float>() + static_cast<std::int64_t>(i) * entries,
                          expected.data() + row * entries, static_cast<std::size_t>(entries) * 4),
              0)
              << "sentence " << sentences[i] << ", position " << position;
        }
      }
    });
  }
}
INSTANTIATE_TEST_SUITE_P(, DecodingPrecisions, ::testing::Values("fp32", "bf16"));

// Three hypotheses a sentence that change places: each goes on with its own past.
TEST(Decoding, HypothesesMoveWithTheirPast) {
  Options options;
  SmallTranslator net(options);
  const SentencePairs pairs = random_pairs(2, options.config, 12);
  // Words of the hypotheses by position; then where each row came from.
  const std::vector<std::vector<std::int32_t>> words{
      {4, 4}, {10, 11, 12, 20, 21, 22}, {30, 31, 32, 40, 41}, {50, 51, 52, 60}};
  const std::vector<std::vector<std::int32_t>> from{
      {}, {0, 0, 0, 1, 1, 1}, {2, 0, 0, 4, 3}, {1, 2, 2, 4}};

  std::vector<std::vector<std::int32_t>> texts(2);  // of the rows
  std::vector<std::int64_t> sentences{0, 1};
  net.in_evaluation([&](Context& context) {
    DecoderState state =
        net.model().start_decoding(context, make_text(pairs.source, pairs.source_tokens.data()));
    for (std::size_t position = 0; position < words.size(); ++position) {
      if (position > 0) {
        state.reorder(context, from[position]);
        std::vector<std::vector<std::int32_t>> moved;
        std::vector<std::int64_t> owners;
        for (const std::int32_t row : from[position]) {
          moved.push_back(texts[row]);
          owners.push_back(sentences[row]);
        }
        texts = moved, sentences = owners;
      }
      for (std::size_t row = 0; row < texts.size(); ++row)
        texts[row].push_back(words[position][row]);
      const Value logits = net.model().decode(context, state, words[position].data());

      // Every hypothesis as a sentence of its own.
      SentencePairs alone = pairs.chosen(sentences);
      alone.target_tokens.clear();
      for (const auto& text : texts)
        alone.target_tokens.insert(alone.target_tokens.end(), text.begin(), text.end());
      const auto length = static_cast<std::int64_t>(position) + 1;
      alone.target = sequences_of(std::vector<std::int64_t>(texts.size(), length));
      const Value all = net.model().logits(context, net.run(context, alone));
      const std::int64_t entries = options.config.target_vocabulary;
      for (std::size_t row = 0; row < texts.size(); ++row)
        EXPECT_EQ(std::memcmp(logits->data.data<float>() + static_cast<std::int64_t>(row) * entries,
                              all->data.data<float>() +
                                  (static_cast<std::int64_t>(row + 1) * length - 1) * entries,
                              static_cast<std::size_t>(entries) * 4),
                  0)
            << "row " << row << ", position " << position;
    }
  });
}

TEST(Decoding, RefusesHypothesesOutOfOrder) {
  Options options;
  SmallTranslator net(options);
  const SentencePairs pairs = random_pairs(2, options.config, 13);
  net.in_evaluation([&](Context& context) {
    DecoderState state =
        net.model().start_decoding(context, make_text(pairs.source, pairs.source_tokens.data()));
    EXPECT_THROW(state.reorder(context, {1, 0}), Error);
    EXPECT_THROW(state.reorder(context, {0, 2}), Error);
  });
}

}  // namespace
}  // namespace memfloor::testing

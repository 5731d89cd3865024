// A stand-in for parallel text that needs no download: a toy pair of languages.
//
// Source words are numbered by frequency, which falls as in real text: about as 1 / number (Zipf).
// A sentence is translated word for word: number r becomes target word r, modulo the target
// vocabulary. Two rules need the context. The order is local: a word of the kind that moves (as
// adjectives do) changes places with the word after it, unless that one moves too. And a compound
// word becomes two target words, the second of which is always the same particle, so that the sides
// differ in length; sentences of fixed length have no compounds.
//
// A sentence is a function of (seed, split, index) in integers only, hence the same everywhere.
#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/philox.h"
#include "data_loaders/translation.h"

namespace memfloor {
namespace {

constexpr std::int64_t kFewestWords = 3, kMostWords = 35;  // where the length varies

bool moves(std::int32_t word) { return word % 3 == 1; }
bool is_compound(std::int32_t word) { return word % 12 == 5; }  // never one that moves
constexpr std::int32_t kParticle = kFirstWord;                  // of the target language

class SyntheticCorpus final : public TranslationCorpus {
 public:
  SyntheticCorpus(std::uint32_t seed, const SyntheticTranslation& options)
      : seed_(seed), options_(options), philox_(seed, Purpose::synthetic_data) {
    for (const Side side : {Side::source, Side::target})
      MEMFLOOR_CHECK(vocabulary(side) >= kFirstWord + 16 && vocabulary(side) <= 1 << 24,
                     "a synthetic vocabulary has 20 to 16777216 entries, not ", vocabulary(side));
    MEMFLOOR_CHECK(options.sentence_length == 0 || options.sentence_length >= 2,
                   "a sentence has a word and its end: at least 2 tokens, not ",
                   options.sentence_length);
  }

  std::int64_t size(Split split) const override {
    return split == Split::train  ? options_.train_size
           : split == Split::test ? options_.test_size
                                  : options_.valid_size;
  }

  std::int64_t vocabulary(Side side) const override {
    return side == Side::source ? options_.source_vocabulary : options_.target_vocabulary;
  }

  std::int64_t length(Split split, Side side, std::int64_t index) const override {
    return static_cast<std::int64_t>(sentence(split, side, index).size());
  }

  void read(Split split, Side side, std::int64_t index, std::int32_t* tokens) const override {
    std::ranges::copy(sentence(split, side, index), tokens);
  }

  std::string word(Side side, std::int32_t token) const override {
    MEMFLOOR_CHECK(token >= 0 && token < vocabulary(side), "the vocabulary has no entry ", token);
    constexpr std::array kSpecial = {"<s>", "<pad>", "</s>", "<unk>"};
    if (token < kFirstWord) return kSpecial[static_cast<std::size_t>(token)];
    return concat(side == Side::source ? "s" : "t", token);
  }

  std::vector<std::string> references(Split split) const override {
    std::vector<std::string> lines(static_cast<std::size_t>(size(split)));
    for (std::size_t i = 0; i < lines.size(); ++i)
      for (const std::int32_t token : sentence(split, Side::target, static_cast<std::int64_t>(i))) {
        if (token == kEnd) break;
        if (!lines[i].empty()) lines[i] += ' ';
        lines[i] += word(Side::target, token);
      }
    return lines;
  }

  nlohmann::json provenance() const override {
    return {{"name", "synthetic_translation"}, {"seed", seed_}, {"version", 1}};
  }

 private:
  std::vector<std::int32_t> sentence(Split split, Side side, std::int64_t index) const {
    MEMFLOOR_CHECK(index >= 0 && index < size(split), "there is no sentence ", index);
    const std::vector<std::int32_t> words = source_words(split, index);
    std::vector<std::int32_t> tokens;
    tokens.reserve(2 * words.size() + 1);
    if (side == Side::source)
      for (const std::int32_t word : words) tokens.push_back(kFirstWord + word);
    else
      translate(words, tokens);
    tokens.push_back(kEnd);
    return tokens;
  }

  /// Numbers by frequency, from 0.
  std::vector<std::int32_t> source_words(Split split, std::int64_t index) const {
    const auto draw = [&](std::int64_t position) {
      return philox_({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                      static_cast<std::uint32_t>(split), static_cast<std::uint32_t>(position)});
    };
    constexpr std::uint32_t kLengths = kMostWords - kFewestWords + 1;
    const std::int64_t count = fixed_length() ? options_.sentence_length - 1
                                              : kFewestWords + uniform_below(draw(0)[0], kLengths);
    std::vector<std::int32_t> words(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
      const auto random = draw(1 + i);
      auto& word = words[static_cast<std::size_t>(i)];
      word = draw_word(random[0], random[1]);
      if (fixed_length() && is_compound(word)) --word;
    }
    return words;
  }

  /// Every octave of the numbers 1 ... N (1, 2 to 3, 4 to 7, ...) is equally likely, and so is
  /// every number in it: Zipf's law in steps. The last octave reaches to N.
  std::int32_t draw_word(std::uint32_t octave_word, std::uint32_t number_word) const {
    const auto words = static_cast<std::uint32_t>(options_.source_vocabulary - kFirstWord);
    const auto octaves = static_cast<std::uint32_t>(std::bit_width(words)) - 1;
    const std::uint32_t octave = uniform_below(octave_word, octaves);
    const std::uint32_t first = 1u << octave;
    const std::uint32_t end = octave + 1 == octaves ? words + 1 : 2 * first;
    return static_cast<std::int32_t>(first + uniform_below(number_word, end - first) - 1);
  }

  void translate(const std::vector<std::int32_t>& words, std::vector<std::int32_t>& tokens) const {
    const auto append = [&](std::int32_t word) {
      tokens.push_back(kFirstWord +
                       word % static_cast<std::int32_t>(options_.target_vocabulary - kFirstWord));
      if (is_compound(word)) tokens.push_back(kParticle);
    };
    for (std::size_t i = 0; i < words.size(); ++i) {
      const bool swap = moves(words[i]) && i + 1 < words.size() && !moves(words[i + 1]);
      if (swap) append(words[i + 1]);
      append(words[i]);
      if (swap) ++i;
    }
  }

  bool fixed_length() const { return options_.sentence_length > 0; }

  std::uint32_t seed_;
  SyntheticTranslation options_;
  Philox philox_;
};

}  // namespace

std::unique_ptr<TranslationCorpus> make_synthetic_translation(std::uint32_t seed,
                                                              const SyntheticTranslation& options) {
  return std::make_unique<SyntheticCorpus>(seed, options);
}

}  // namespace memfloor

// Parallel text for training translation models: pairs of sentences as token numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "data_loaders/split.h"

namespace memfloor {

/// The special entries of every vocabulary, numbered as in fairseq's Dictionary: <s>, <pad>, </s>,
/// <unk>. Words follow. No sentence holds padding: it has its entry for the sake of the numbers.
inline constexpr std::int32_t kBegin = 0, kPad = 1, kEnd = 2, kUnknown = 3, kFirstWord = 4;

enum class Side { source, target };

class TranslationCorpus {
 public:
  virtual ~TranslationCorpus() = default;

  /// Pairs of sentences.
  virtual std::int64_t size(Split split) const = 0;
  /// Entries, the special ones included.
  virtual std::int64_t vocabulary(Side side) const = 0;
  /// Tokens of a sentence, its kEnd included: at least 2. Thread-safe, like all of these.
  virtual std::int64_t length(Split split, Side side, std::int64_t index) const = 0;
  /// Writes the length() tokens of a sentence; the last is kEnd.
  virtual void read(Split split, Side side, std::int64_t index, std::int32_t* tokens) const = 0;
  /// The text of a vocabulary's entry; a word may be a piece of one ("@@" at its end).
  virtual std::string word(Side side, std::int32_t token) const = 0;
  /// The target sentences that a translation is compared with: tokenised text, words whole, one
  /// for each pair of `split`, which is valid or test. Throws InputError as opening does.
  virtual std::vector<std::string> references(Split split) const = 0;
  /// What identifies the data in a result file: name, files, their SHA-256, notes.
  virtual nlohmann::json provenance() const = 0;
};

/// The folder that scripts/prepare_iwslt14 writes, memory-mapped: corpus.json, a dictionary for
/// each language, and for each split and language one file of tokens (see token_file.h). Throws
/// InputError for anything missing, damaged or contradictory, saying which file and what to do.
std::unique_ptr<TranslationCorpus> open_translation_corpus(const std::string& directory);

/// A toy pair of languages (see synthetic_translation.cc), computed when read.
struct SyntheticTranslation {
  /// Tokens of every sentence on both sides, kEnd included; 0: from 4 to about 40.
  std::int64_t sentence_length = 0;
  std::int64_t source_vocabulary = 8848, target_vocabulary = 6632;  // IWSLT'14's
  std::int64_t train_size = 20000, valid_size = 500, test_size = 500;
};
std::unique_ptr<TranslationCorpus> make_synthetic_translation(std::uint32_t seed,
                                                              const SyntheticTranslation& = {});

/// Where each of some sentences begins, when their tokens lie one after another without padding:
/// count + 1 rows, the last being their sum.
std::vector<std::int64_t> first_rows(const TranslationCorpus& corpus, Split split, Side side,
                                     std::span<const std::int32_t> sentences);

/// Fills the tokens of a part: of these sentences, one after another without padding. A target
/// sentence "a b" is read by the decoder as "kEnd a b", as in fairseq, and must come out as
/// "a b kEnd". The sizes of the arrays are the last of first_rows().
void load_part(const TranslationCorpus& corpus, Split split,
               std::span<const std::int32_t> sentences, std::int32_t* source,
               std::int32_t* decoder_input, std::int32_t* decoder_output);

}  // namespace memfloor

// Batches of sentences of like length, as fairseq of 2019 makes them: their sizes are limited by
// tokens, not by sentences.
//
// Pairs are shuffled, then sorted by source length, and by target length where those are equal;
// sorting keeps the shuffled order of what is still equal. A batch takes pairs in this order while
// sentences x longest sentence (source or target, end marks included: what a padded batch would
// hold) stays within the limit. When it is full it gives back what exceeds a multiple of 8
// sentences, if it has 8, to begin the next batch with. Where even that leaves the next batch too
// full it is closed at once (fairseq would exceed the limit there).
//
// The composition of batches is fixed by the seed; their order is shuffled in every epoch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data_loaders/translation.h"

namespace memfloor {

struct BatchRules {
  std::int64_t max_tokens = 4000;  // sentences x longest
  std::int64_t max_sentences = 0;  // 0: as many as fit
  std::int64_t multiple = 8;       // of sentences, where it can be
  std::int64_t longest = 0;        // pairs with a longer side are skipped; 0: max_tokens
};

/// What a batch holds, in tokens, end marks included.
struct BatchTotals {
  std::int64_t source_tokens = 0, target_tokens = 0;    // rows, without padding
  std::int64_t longest_source = 0, longest_target = 0;  // of one sentence
};

class TokenBatches {
 public:
  /// For training. Throws InputError where every pair is too long for the rules.
  static TokenBatches shuffled(const TranslationCorpus& corpus, Split split, std::uint32_t seed,
                               const BatchRules& rules);
  /// For evaluation: nothing is shuffled, and batch_at() does not depend on the epoch. What a batch
  /// yields for sentences(batch)[i] belongs to that pair of the corpus.
  static TokenBatches in_order(const TranslationCorpus& corpus, Split split,
                               const BatchRules& rules);

  std::int64_t count() const { return static_cast<std::int64_t>(starts_.size()) - 1; }
  /// Pairs of the split, by number, shortest first.
  std::span<const std::int32_t> sentences(std::int64_t batch) const;
  const BatchTotals& totals(std::int64_t batch) const;
  /// The batch that comes `position`-th, 0 <= position < count(), in an epoch.
  std::int64_t batch_at(std::uint32_t epoch, std::int64_t position) const;

  /// Pairs that no batch holds, because they are longer than the rules allow.
  std::int64_t skipped() const { return skipped_; }
  /// One sentence about them for the user; empty where there are none.
  std::string skipped_note() const;

 private:
  TokenBatches(const TranslationCorpus& corpus, Split split, std::uint32_t seed, bool shuffle,
               const BatchRules& rules);

  std::uint32_t seed_;
  bool shuffle_;
  std::int64_t longest_, skipped_ = 0;
  std::vector<std::int32_t> sentences_;  // batch after batch
  std::vector<std::int64_t> starts_;     // of the batches in sentences_, and its end
  std::vector<BatchTotals> totals_;      // by batch
};

}  // namespace memfloor

#include "data_loaders/token_batches.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "core/error.h"
#include "core/philox.h"

namespace memfloor {
namespace {

// An epoch that no run reaches: the order of batches must tell nothing about their composition.
constexpr std::uint32_t kCompositionEpoch = 0xffffffff;

struct Pair {
  std::int32_t index, source, target;  // number in the split, tokens on each side
  std::int64_t longer() const { return std::max(source, target); }
};

/// All pairs, shuffled or not, then sorted by length.
std::vector<Pair> sorted_pairs(const TranslationCorpus& corpus, Split split, std::uint32_t seed,
                               bool shuffle) {
  const std::int64_t size = corpus.size(split);
  MEMFLOOR_CHECK(size > 0 && size <= std::numeric_limits<std::int32_t>::max(), "cannot batch ",
                 size, " pairs of sentences");
  const Permutation shuffled(seed, kCompositionEpoch, size);
  std::vector<Pair> pairs(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int64_t index = shuffle ? shuffled(i) : i;
    pairs[static_cast<std::size_t>(i)] = {
        static_cast<std::int32_t>(index),
        static_cast<std::int32_t>(corpus.length(split, Side::source, index)),
        static_cast<std::int32_t>(corpus.length(split, Side::target, index))};
  }
  std::ranges::stable_sort(pairs, {}, [](const Pair& p) { return std::tuple(p.source, p.target); });
  return pairs;
}

/// How many of `pairs`, the first ones, make the next batch.
std::int64_t next_batch(std::span<const Pair> pairs, const BatchRules& rules) {
  std::int64_t count = 0, longest = 0;
  for (const Pair& pair : pairs) {
    longest = std::max(longest, pair.longer());
    const bool full = (count + 1) * longest > rules.max_tokens ||
                      (rules.max_sentences > 0 && count == rules.max_sentences);
    if (full) return count < rules.multiple ? count : count / rules.multiple * rules.multiple;
    ++count;
  }
  return count;  // the last pairs
}

}  // namespace

TokenBatches TokenBatches::shuffled(const TranslationCorpus& corpus, Split split,
                                    std::uint32_t seed, const BatchRules& rules) {
  return TokenBatches(corpus, split, seed, true, rules);
}

TokenBatches TokenBatches::in_order(const TranslationCorpus& corpus, Split split,
                                    const BatchRules& rules) {
  return TokenBatches(corpus, split, 0, false, rules);
}

TokenBatches::TokenBatches(const TranslationCorpus& corpus, Split split, std::uint32_t seed,
                           bool shuffle, const BatchRules& rules)
    : seed_(seed), shuffle_(shuffle), longest_(rules.max_tokens) {
  MEMFLOOR_CHECK(
      rules.max_tokens > 0 && rules.multiple > 0 && rules.max_sentences >= 0 && rules.longest >= 0,
      "batches need a limit of tokens and a multiple of sentences, not ", rules.max_tokens, " and ",
      rules.multiple);
  if (rules.longest > 0) longest_ = std::min(longest_, rules.longest);
  std::vector<Pair> pairs = sorted_pairs(corpus, split, seed, shuffle);
  skipped_ = static_cast<std::int64_t>(
      std::erase_if(pairs, [&](const Pair& pair) { return pair.longer() > longest_; }));
  if (pairs.empty())
    throw InputError(concat("all ", skipped_, " pairs of sentences are longer than ", longest_,
                            " tokens; raise the limit of tokens in a batch"));
  sentences_.reserve(pairs.size());
  starts_.push_back(0);
  for (std::span<const Pair> rest = pairs; !rest.empty();) {
    const auto batch = rest.first(static_cast<std::size_t>(next_batch(rest, rules)));
    BatchTotals totals;
    for (const Pair& pair : batch) {
      sentences_.push_back(pair.index);
      totals.source_tokens += pair.source;
      totals.target_tokens += pair.target;
      totals.longest_source = std::max<std::int64_t>(totals.longest_source, pair.source);
      totals.longest_target = std::max<std::int64_t>(totals.longest_target, pair.target);
    }
    totals_.push_back(totals);
    starts_.push_back(static_cast<std::int64_t>(sentences_.size()));
    rest = rest.subspan(batch.size());
  }
}

std::span<const std::int32_t> TokenBatches::sentences(std::int64_t batch) const {
  MEMFLOOR_CHECK(batch >= 0 && batch < count(), "there is no batch ", batch);
  const std::int64_t* start = &starts_[static_cast<std::size_t>(batch)];
  return {sentences_.data() + start[0], sentences_.data() + start[1]};
}

const BatchTotals& TokenBatches::totals(std::int64_t batch) const {
  MEMFLOOR_CHECK(batch >= 0 && batch < count(), "there is no batch ", batch);
  return totals_[static_cast<std::size_t>(batch)];
}

std::int64_t TokenBatches::batch_at(std::uint32_t epoch, std::int64_t position) const {
  MEMFLOOR_CHECK(position >= 0 && position < count(), "an epoch has no batch ", position);
  return shuffle_ ? Permutation(seed_, epoch, count())(position) : position;
}

std::string TokenBatches::skipped_note() const {
  if (skipped_ == 0) return "";
  return concat(skipped_, skipped_ == 1 ? " pair" : " pairs", " of sentences longer than ",
                longest_, " tokens ", skipped_ == 1 ? "is" : "are", " skipped");
}

}  // namespace memfloor

#include "suite/bleu.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>

#include "core/error.h"
#include "suite/environment.h"

namespace memfloor {
namespace {

/// Words joined by single spaces, and where each begins; so every n-gram is a piece of the text,
/// and its spaces tell its order.
class Words {
 public:
  explicit Words(std::string text) : text_(std::move(text)) {
    for (std::size_t i = 0; i < text_.size(); ++i)
      if (i == 0 || text_[i - 1] == ' ') starts_.push_back(i);
  }

  int count() const { return static_cast<int>(starts_.size()); }
  /// The n-gram of `words` words that begins with word `first`.
  std::string_view ngram(int first, int words) const {
    const std::size_t begin = starts_[static_cast<std::size_t>(first)];
    const auto next = static_cast<std::size_t>(first + words);
    const std::size_t end = next < starts_.size() ? starts_[next] - 1 : text_.size();
    return std::string_view(text_).substr(begin, end - begin);
  }

 private:
  std::string text_;
  std::vector<std::size_t> starts_;
};

using NgramCounts = std::unordered_map<std::string_view, int>;

NgramCounts ngrams_of(const Words& words, int length) {
  NgramCounts counts;
  for (int first = 0; first + length <= words.count(); ++first)
    ++counts[words.ngram(first, length)];
  return counts;
}

/// Of the reference that is nearest in length to the hypothesis, the shorter of two.
int nearest_length(int hypothesis, const std::vector<Words>& references) {
  const auto nearer = [&](const Words& a, const Words& b) {
    return std::pair(std::abs(a.count() - hypothesis), a.count()) <
           std::pair(std::abs(b.count() - hypothesis), b.count());
  };
  return std::ranges::min_element(references, nearer)->count();
}

void add_line(const Words& hypothesis, const std::vector<Words>& references, BleuCounts& counts) {
  counts.hypothesis_length += hypothesis.count();
  counts.reference_length += nearest_length(hypothesis.count(), references);
  for (std::size_t n = 0; n < counts.total.size(); ++n) {
    const int length = static_cast<int>(n) + 1;
    NgramCounts allowed;  // an n-gram is right as often as one of the references has it
    for (const Words& reference : references)
      for (const auto& [ngram, count] : ngrams_of(reference, length))
        allowed[ngram] = std::max(allowed[ngram], count);
    for (const auto& [ngram, count] : ngrams_of(hypothesis, length)) {
      counts.total[n] += count;
      if (const auto found = allowed.find(ngram); found != allowed.end())
        counts.correct[n] += std::min(count, found->second);
    }
  }
}

double ratio(const BleuCounts& counts) {
  return counts.reference_length == 0 ? 0
                                      : static_cast<double>(counts.hypothesis_length) /
                                            static_cast<double>(counts.reference_length);
}

double brevity_penalty(const BleuCounts& counts) {
  if (counts.hypothesis_length >= counts.reference_length) return 1;
  if (counts.hypothesis_length == 0) return 0;
  return std::exp(1 - 1 / ratio(counts));
}

}  // namespace

BleuCounts count_ngrams(std::span<const std::string> hypotheses,
                        std::span<const std::vector<std::string>> references,
                        const BleuOptions& options) {
  MEMFLOOR_CHECK(options.order > 0 && !references.empty(), "BLEU needs n-grams and references");
  const auto order = static_cast<std::size_t>(options.order);
  BleuCounts counts;
  counts.correct.resize(order), counts.total.resize(order);
  for (const auto& set : references)
    MEMFLOOR_CHECK(set.size() == hypotheses.size(), "there are ", hypotheses.size(),
                   " hypotheses but ", set.size(), " references");
  const auto words = [&](const std::string& line) {
    return Words(bleu_words(line, options.tokenizer, options.lower_case));
  };
  for (std::size_t i = 0; i < hypotheses.size(); ++i) {
    std::vector<Words> line_references;
    for (const auto& set : references) line_references.push_back(words(set[i]));
    add_line(words(hypotheses[i]), line_references, counts);
  }
  return counts;
}

BleuScore score_bleu(const BleuCounts& counts, const BleuOptions& options) {
  BleuScore score{counts, 0, std::vector<double>(counts.total.size()), brevity_penalty(counts)};
  const auto is_zero = [](std::int64_t n) { return n == 0; };
  if (std::ranges::all_of(counts.correct, is_zero)) return score;
  double missing = 1;  // halved by every order that exp smooths
  std::size_t orders = 0;
  for (std::size_t n = 0; n < counts.total.size(); ++n) {
    const double added =
        options.smoothing == BleuSmoothing::add_k && n > 0 ? options.smoothing_value : 0;
    const double total = static_cast<double>(counts.total[n]) + added;
    double correct = static_cast<double>(counts.correct[n]) + added;
    if (total == 0) break;
    orders = n + 1;
    if (correct == 0 && options.smoothing == BleuSmoothing::exp) correct = missing /= 2;
    if (correct == 0 && options.smoothing == BleuSmoothing::floor)
      correct = options.smoothing_value;
    score.precisions[n] = 100 * correct / total;
  }
  if (!options.effective_order) orders = score.precisions.size();
  double sum = 0;  // a precision of 0 gives a sum of -infinity and a score of 0
  for (std::size_t n = 0; n < orders; ++n) sum += std::log(score.precisions[n]);
  score.bleu = score.brevity_penalty * std::exp(sum / static_cast<double>(orders));
  return score;
}

BleuScore bleu(std::span<const std::string> hypotheses, const std::vector<std::string>& references,
               const BleuOptions& options) {
  return score_bleu(count_ngrams(hypotheses, {&references, 1}, options), options);
}

std::string to_text(const BleuScore& score) {
  std::string text;
  char piece[128];
  for (const double precision : score.precisions) {
    std::snprintf(piece, sizeof piece, "%s%.1f", text.empty() ? "" : "/", precision);
    text += piece;
  }
  std::snprintf(piece, sizeof piece, "BLEU = %.2f, ", score.bleu);
  text = piece + text;
  std::snprintf(piece, sizeof piece, " (BP=%.3f, ratio=%.3f, hyp_len=%lld, ref_len=%lld)",
                score.brevity_penalty, ratio(score.counts),
                static_cast<long long>(score.counts.hypothesis_length),
                static_cast<long long>(score.counts.reference_length));
  return text + piece;
}

nlohmann::json to_json(const BleuScore& score) {
  return {{"bleu", score.bleu},
          {"precisions", score.precisions},
          {"correct", score.counts.correct},
          {"total", score.counts.total},
          {"brevity_penalty", score.brevity_penalty},
          {"hypothesis_length", score.counts.hypothesis_length},
          {"reference_length", score.counts.reference_length}};
}

std::string bleu_signature(const BleuOptions& options, int references) {
  constexpr const char* kSmoothings[] = {"none", "floor", "add-k", "exp"};  // as BleuSmoothing
  std::string smoothing = kSmoothings[static_cast<int>(options.smoothing)];
  if (options.smoothing == BleuSmoothing::floor || options.smoothing == BleuSmoothing::add_k) {
    char value[32];
    std::snprintf(value, sizeof value, "[%.2f]", options.smoothing_value);
    smoothing += value;
  }
  return concat("nrefs:", references, "|case:", options.lower_case ? "lc" : "mixed",
                "|eff:", options.effective_order ? "yes" : "no",
                "|tok:", options.tokenizer == BleuTokenizer::v13a ? "13a" : "none",
                "|smooth:", smoothing, "|version:memfloor-", memfloor_version());
}

}  // namespace memfloor

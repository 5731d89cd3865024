#include "suite/beam_search.h"

#include <algorithm>
#include <cmath>

#include "data_loaders/translation.h"

namespace memfloor {
namespace {

struct Hypothesis {
  std::vector<std::int32_t> tokens;
  double log_likelihood = 0;
};

// How a hypothesis may go on.
struct Continuation {
  std::int32_t row = 0;  // of the hypothesis
  std::int32_t token = 0;
  double log_likelihood = 0;
};

// Better first; equals in the order of rows and tokens.
bool better(const Continuation& a, const Continuation& b) {
  if (a.log_likelihood != b.log_likelihood) return a.log_likelihood > b.log_likelihood;
  return a.row != b.row ? a.row < b.row : a.token < b.token;
}

// The search of one sentence.
struct Sentence {
  std::int32_t first_row = 0;        // of its hypotheses among all
  std::vector<Hypothesis> beam{{}};  // unfinished; empty once the search has ended
  std::vector<Translation> finished;
};

class Search {
 public:
  Search(const BeamOptions& options, std::int64_t sentences)
      : options_(options), sentences_(static_cast<std::size_t>(sentences)) {
    number_rows();
  }

  bool done() const { return rows_ == 0; }
  std::int64_t rows() const { return rows_; }

  /// What every hypothesis ends with; row by row.
  void last_tokens(std::int32_t* to) const {
    for (const Sentence& sentence : sentences_)
      for (const Hypothesis& hypothesis : sentence.beam)
        *to++ = hypothesis.tokens.empty() ? kEnd : hypothesis.tokens.back();
  }

  /// Appends a word to every hypothesis. Returns which row each of the new ones was.
  std::vector<std::int32_t> advance(const float* logits, std::int64_t vocabulary) {
    std::vector<std::int32_t> from;
    for (Sentence& sentence : sentences_)
      if (!sentence.beam.empty()) advance(sentence, logits, vocabulary, from);
    ++length_;
    number_rows();
    return from;
  }

  std::vector<Translation> best() const {
    std::vector<Translation> translations;
    for (const Sentence& sentence : sentences_)
      translations.push_back(*std::max_element(
          sentence.finished.begin(), sentence.finished.end(),
          [](const Translation& a, const Translation& b) { return a.score < b.score; }));
    return translations;
  }

 private:
  void advance(Sentence& sentence, const float* logits, std::int64_t vocabulary,
               std::vector<std::int32_t>& from) {
    const auto wanted = static_cast<std::size_t>(2 * options_.beam);
    std::vector<Continuation> best;
    for (std::size_t h = 0; h < sentence.beam.size(); ++h)
      add_continuations(sentence.beam[h], sentence.first_row + static_cast<std::int32_t>(h), logits,
                        vocabulary, wanted, best);
    const std::size_t kept = std::min(wanted, best.size());
    std::partial_sort(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(kept), best.end(),
                      better);
    best.resize(kept);

    std::vector<Hypothesis> next;
    for (std::size_t i = 0; i < best.size(); ++i) {
      const Continuation& c = best[i];
      const Hypothesis& old = sentence.beam[static_cast<std::size_t>(c.row - sentence.first_row)];
      if (c.token == kEnd) {
        if (i < static_cast<std::size_t>(options_.beam)) finish(sentence, old, c.log_likelihood);
      } else if (next.size() < static_cast<std::size_t>(options_.beam)) {
        next.push_back({old.tokens, c.log_likelihood});
        next.back().tokens.push_back(c.token);
        rows_of_next_.push_back(c.row);
      }
    }
    if (sentence.finished.size() >= static_cast<std::size_t>(options_.beam) || next.empty())
      next.clear(), rows_of_next_.clear();
    from.insert(from.end(), rows_of_next_.begin(), rows_of_next_.end());
    rows_of_next_.clear();
    sentence.beam = std::move(next);
  }

  // At the longest length a hypothesis can only end.
  void add_continuations(const Hypothesis& hypothesis, std::int32_t row, const float* all_logits,
                         std::int64_t vocabulary, std::size_t wanted,
                         std::vector<Continuation>& to) const {
    const float* logits = all_logits + row * vocabulary;
    const float highest = *std::max_element(logits, logits + vocabulary);
    double sum = 0;
    for (std::int64_t v = 0; v < vocabulary; ++v) sum += std::exp(logits[v] - highest);
    const double normaliser = highest + std::log(sum);
    const auto continuation = [&](std::int64_t token) {
      return Continuation{row, static_cast<std::int32_t>(token),
                          hypothesis.log_likelihood + logits[token] - normaliser};
    };
    if (length_ == options_.longest) return to.push_back(continuation(kEnd));
    std::vector<std::int32_t> tokens;
    for (std::int32_t v = 0; v < vocabulary; ++v)
      if (v != kPad) tokens.push_back(v);
    const auto last = tokens.begin() + static_cast<std::ptrdiff_t>(std::min(wanted, tokens.size()));
    std::partial_sort(tokens.begin(), last, tokens.end(), [&](std::int32_t a, std::int32_t b) {
      return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
    });
    for (auto token = tokens.begin(); token != last; ++token) to.push_back(continuation(*token));
  }

  void finish(Sentence& sentence, const Hypothesis& hypothesis, double log_likelihood) const {
    const auto length = static_cast<double>(hypothesis.tokens.size() + 1);
    sentence.finished.push_back(
        {hypothesis.tokens, log_likelihood / std::pow(length, options_.length_penalty)});
  }

  void number_rows() {
    rows_ = 0;
    for (Sentence& sentence : sentences_) {
      sentence.first_row = static_cast<std::int32_t>(rows_);
      rows_ += static_cast<std::int64_t>(sentence.beam.size());
    }
  }

  BeamOptions options_;
  std::vector<Sentence> sentences_;
  std::vector<std::int32_t> rows_of_next_;
  std::int64_t rows_ = 0, length_ = 0;
};

}  // namespace

std::vector<Translation> beam_search(Context& context, const DynamicConv& model, Value source_text,
                                     const BeamOptions& options) {
  TensorOps& ops = context.backend.tensor_ops();
  Search search(options, source_text->sequences->count());
  DecoderState state = model.start_decoding(context, std::move(source_text));
  while (!search.done()) {
    const Block tokens = context.ledger.allocate(search.rows() * 4, Category::input, "last words");
    ops.upload(tokens.data(), tokens.bytes(),
               [&](void* host) { search.last_tokens(static_cast<std::int32_t*>(host)); });
    const Value logits = model.decode(context, state, static_cast<std::int32_t*>(tokens.data()));
    std::vector<std::int32_t> from;
    ops.on_host({{logits->data.raw(), logits->data.bytes()}}, [&](const std::vector<void*>& host) {
      from = search.advance(static_cast<const float*>(host[0]), logits->data.shape()[1]);
    });
    if (!search.done()) state.reorder(context, from);
  }
  return search.best();
}

}  // namespace memfloor

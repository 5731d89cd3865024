// Beam search as fairseq's generator has it: hypotheses of a sentence compete by their
// log-likelihood; finished ones by that divided by their length to some power.
#pragma once

#include <cstdint>
#include <vector>

#include "models/dynamic_conv.h"

namespace memfloor {

struct BeamOptions {
  int beam = 4;
  double length_penalty = 1;   // the power
  std::int64_t longest = 200;  // words of a translation, its end mark apart
};

struct Translation {
  std::vector<std::int32_t> tokens;  // without the end mark
  double score = 0;                  // log-likelihood, end mark included, per length^penalty
};

/// The best translation of every sentence of `source_text`, in order. `context` is for evaluation;
/// its ledger holds the decoder's state meanwhile.
///
/// A sentence keeps the best `beam` unfinished hypotheses. Of its 2 beam best continuations those
/// among the first `beam` that end are finished; once `beam` are, or at the longest length, the
/// best finished one is the translation. Padding is never a word.
std::vector<Translation> beam_search(Context& context, const DynamicConv& model, Value source_text,
                                     const BeamOptions& options);

}  // namespace memfloor

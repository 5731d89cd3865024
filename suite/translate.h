// Translating a test set and scoring it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "suite/beam_search.h"
#include "suite/trainer.h"
#include "suite/translation_task.h"

namespace memfloor {

/// The words of a sentence's tokens, whole again, with spaces between them.
std::string text_of(const TranslationCorpus& corpus, Side side,
                    const std::vector<std::int32_t>& tokens);

/// Translates the first `sentences` pairs of the split (0: all) with the trainer's weights, the
/// training's part size at a time; a line each, in the corpus's order. Shows progress.
std::vector<std::string> translate(Trainer& trainer, const TranslationTask& task, Split split,
                                   std::int64_t sentences, const BeamOptions& options = {});

/// Translates the test set: {"bleu": (of tokenised text, as multi-bleu.perl), "bleu_signature",
/// "samples": [{"source", "reference", "translation"}]}.
nlohmann::json score_translation(Trainer& trainer, const TranslationTask& task,
                                 std::int64_t sentences);

}  // namespace memfloor

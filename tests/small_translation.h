// Training a small DynamicConv on a few short sentences of the toy languages.
#pragma once

#include "suite/session.h"
#include "suite/translation_task.h"

namespace memfloor::testing {

/// Sentences differ in length; words of 30 and 26 kinds.
inline constexpr SyntheticTranslation kFewSentences{.source_vocabulary = 34,
                                                    .target_vocabulary = 30,
                                                    .train_size = 100,
                                                    .valid_size = 20,
                                                    .test_size = 6};

/// dynamic_conv2_2_32 on minibatches of at most 400 tokens, some ten an epoch. One thread: too
/// little work for two, which would wait for each other on a busy machine.
RunSpec translation_spec(const std::string& precision = "fp32", int threads = 1);

/// The techniques' settings at this size: parts of 90 tokens, 16 positions' logits at a time.
RunSpec scaled_down(RunSpec spec);

enum class Planned { before, on_demand };

/// A session like open_session()'s. On demand: the arena is told of no phase, and asks for each.
Session translation_session(const RunSpec& spec, const SyntheticTranslation& sentences,
                            Planned planned = Planned::before);

}  // namespace memfloor::testing

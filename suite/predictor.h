// Prediction: the same trainer on the null backend. What it allocates is what the real run will.
#pragma once

#include <memory>
#include <vector>

#include "suite/trainer.h"

namespace memfloor {

/// How many samples there are, which decides the sizes of the last minibatch and evaluation part.
struct DataSize {
  std::int64_t train = 50000, test = 10000;
};

struct Prediction {
  MemoryRecord training, evaluation;
  EventLog log;        // of the whole null run: set-up, minibatches, evaluation parts
  ArenaLayout layout;  // for the real run
  MultiplyAdds work;   // of one whole minibatch
};

/// The sizes that occur when `samples` > 0 are cut into parts of at most `part` > 0: `part` and
/// what is left, largest first.
std::vector<std::int64_t> part_sizes(std::int64_t samples, std::int64_t part);

/// One part of every size that occurs when `samples` test samples are evaluated, and when batch
/// norm is recalibrated for it: what decides the evaluation's memory.
void evaluate_each_size(Trainer& trainer, std::int64_t samples);

/// Two minibatches, one part of an evaluation and of a recalibration, of every size that occurs,
/// and a move of the pattern of non-zeros. `target` makes (and keeps) its primitives on the way.
/// Throws InputError for a spec that asks for more samples than there are.
Prediction predict(const RunSpec& spec, const WideResNetConfig& config, const DataSize& size,
                   std::shared_ptr<Backend> target);

}  // namespace memfloor

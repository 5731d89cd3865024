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

/// Trains two minibatches, moves the pattern of non-zeros, recalibrates and evaluates one part, of
/// every size that occurs in an epoch: a small last part can need more workspace than a whole one.
/// Returns the work of one whole minibatch.
MultiplyAdds run_every_size(Trainer& trainer, const DataSize& size, float learning_rate);

/// What run_every_size() takes. `target` makes (and keeps) its primitives on the way. Throws
/// InputError for a spec that asks for more samples than there are.
Prediction predict(const RunSpec& spec, const WideResNetConfig& config, const DataSize& size,
                   std::shared_ptr<Backend> target);

}  // namespace memfloor

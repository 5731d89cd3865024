// Prediction: the same trainer on the null backend. What it allocates is what the real run will.
#pragma once

#include <memory>
#include <vector>

#include "suite/trainer.h"

namespace memfloor {

struct Prediction {
  MemoryRecord training, evaluation;
  EventLog log;                 // of the whole null run: set-up, minibatches, evaluation parts
  ArenaLayout layout;           // for the real run
  MultiplyAdds work;            // of the largest minibatch
  std::int64_t work_terms = 0;  // samples or target tokens of that minibatch
};

/// Trains a minibatch, recalibrates with and evaluates a part, of every shape that the task has,
/// and moves the pattern of non-zeros. Returns the work of the largest minibatch, and its loss
/// terms.
std::pair<MultiplyAdds, std::int64_t> run_every_shape(Trainer& trainer, float learning_rate);

/// What run_every_shape() takes. `target` makes (and keeps) its primitives on the way.
Prediction predict(const RunSpec& spec, const Task& task, std::shared_ptr<Backend> target);

}  // namespace memfloor

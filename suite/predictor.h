// Prediction: the same trainer on the null backend. What it allocates is what the real run will.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "suite/trainer.h"

namespace memfloor {

struct Prediction {
  MemoryRecord training, evaluation;
  EventLog log;                 // of the set-up and of the phase with the highest peak
  ArenaLayout layout;           // for the real run
  MultiplyAdds work;            // of the largest minibatch
  std::int64_t work_terms = 0;  // samples or target tokens of that minibatch
  /// Minibatches in which between them every figure of `training` is reached.
  std::vector<Minibatch> decisive;
};

/// Runs what the real run will, on nothing.
class Predictor {
 public:
  /// `target` makes (and keeps) its primitives on the way. The task must outlive this.
  Predictor(const RunSpec& spec, const Task& task, std::shared_ptr<Backend> target);

  /// Trains a minibatch, recalibrates with and evaluates a part, of every shape that the task has,
  /// and moves the pattern of non-zeros.
  Prediction predict();
  /// Where the blocks of a phase lie that the prediction's layout does not hold.
  std::vector<ArenaLayout::Placement> plan_phase(std::string_view name);

 private:
  // Runs phases; then plans what they did, where an error may be thrown.
  void run(const std::function<void()>& phases);
  void take(EventLog&& events);

  std::unique_ptr<Backend> null_;
  Trainer trainer_;
  std::vector<EventLog> done_;  // of phases that are not planned yet
  LayoutPlanner planner_;
  std::vector<ArenaLayout::Placement> planned_;  // of the phase `wanted_`
  std::string wanted_;
  Prediction prediction_;
  std::size_t set_up_ = 0;     // its events
  std::int64_t highest_ = -1;  // peak of a phase so far, beside the set-up
  std::map<std::string, std::function<void()>, std::less<>> phases_;  // by name: runs it
};

/// Predictor::predict() of one that is then dropped.
Prediction predict(const RunSpec& spec, const Task& task, std::shared_ptr<Backend> target);

/// What has to run for real in order to measure every figure of the prediction.
void run_decisive(Trainer& trainer, const Prediction& prediction, float learning_rate);

}  // namespace memfloor

// The trainer: one minibatch, one evaluation part, in one straight line. It owns everything a run
// holds: ledger, parameters, policies, model. It knows no technique, no file and no clock.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/memory_source.h"
#include "engine/batch_plan.h"
#include "engine/context.h"
#include "suite/run_spec.h"
#include "suite/task.h"

namespace memfloor {

class Trainer {
 public:
  /// `spec` is validated. The task and the backend must live as long as the trainer.
  Trainer(const RunSpec& spec, const Task& task, Backend& backend,
          std::unique_ptr<MemorySource> memory, bool log_events = false);

  /// Weights from the spec's seed, state zero, running statistics at their start.
  void initialize();
  /// Goes on after so many updates, whose results have been read back.
  void resume_after(std::int64_t updates) { updates_ = updates; }

  /// Forward, backward, update; then the pattern of non-zeros moves, where that is due. Throws
  /// Error where overflows have driven the loss scale to nothing.
  Totals train(const Minibatch& minibatch, float learning_rate);
  /// Moves the pattern of non-zeros now, in a phase of its own. Does nothing where the spec has
  /// none that ever moves.
  void move_pattern();
  /// One of the task's evaluation parts.
  Totals evaluate(const Part& part);
  /// Re-estimates the batch-norm statistics that evaluation uses, until the next train(), with the
  /// current weights: their plain average over parts of training samples, in the data set's order,
  /// not augmented. Called for every one of the task's recalibration parts, in order; `index`
  /// counts them. Training's own running statistics stay as they are.
  void recalibrate(std::int64_t index, const Part& part);

  /// Runs `forward` as one part of a minibatch, then its backward pass; gradients are left in the
  /// store and running statistics committed, nothing is updated; for tests.
  Totals forward_backward(std::int64_t terms,
                          const std::function<void(Context&, LossSums*)>& forward);

  /// Runs `body` in evaluation with the current weights, on a ledger of its own on the heap: for
  /// what allocates as its data will have it, like decoding. Its blocks and those of the set-up
  /// stay within the budget.
  void with_weights(const std::function<void(Context&)>& body);

  const Chain& chain() const { return network_->chain(); }
  const Network& network() const { return *network_; }
  const Task& task() const { return task_; }
  /// Instead of the spec's checkpointing plan.
  void use_plan(std::unique_ptr<RetentionPlan> plan) { retention_ = std::move(plan); }

  Ledger& ledger() { return ledger_; }
  const Ledger& ledger() const { return ledger_; }
  ParameterStore& parameters() { return *parameters_; }
  RunningStatistics& running() { return running_; }
  LossScaler& loss_scaler() { return *scaler_; }
  TensorOps& ops() { return backend_.tensor_ops(); }
  const RunSpec& spec() const { return spec_; }

  /// Told in train() what begins: "forward" and "backward" of every part, then "update".
  std::function<void(const char* stage)> on_stage;
  /// Peaks over all minibatches, and over all evaluation parts.
  MemoryRecord training_record, evaluation_record;
  /// Multiply-adds of the last minibatch, and of the last evaluation part.
  MultiplyAdds work;
  /// Of with_weights(), the set-up's blocks included; 0: it never ran.
  std::int64_t peak_with_weights = 0;

 private:
  Totals update(const Minibatch& minibatch, float learning_rate);
  Context context(Tape* tape, Pass pass) { return context(ledger_, tape, pass); }
  Context context(Ledger& ledger, Tape* tape, Pass pass);
  void stage(const char* name) const {
    if (on_stage) on_stage(name);
  }
  LossSums* sums() const { return static_cast<LossSums*>(sums_.data()); }
  Totals read_sums(std::int64_t terms);

  RunSpec spec_;
  const Task& task_;
  Backend& backend_;
  PrecisionPolicy precision_;
  std::unique_ptr<LossScaler> scaler_;
  std::unique_ptr<BatchPlan> batch_plan_;
  std::unique_ptr<Optimizer> optimizer_;
  Ledger ledger_;
  std::unique_ptr<ParameterStore> parameters_;
  RunningStatistics running_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<RetentionPlan> retention_;
  Block sums_;  // LossSums
  std::int64_t updates_ = 0;
};

}  // namespace memfloor

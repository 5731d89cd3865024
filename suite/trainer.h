// The trainer: one minibatch, one evaluation part, in one straight line. It owns everything a run
// holds: ledger, parameters, policies, model. It knows no technique, no file and no clock.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/memory_source.h"
#include "data_loaders/image_dataset.h"
#include "engine/batch_plan.h"
#include "engine/context.h"
#include "models/wide_resnet.h"
#include "suite/run_spec.h"

namespace memfloor {

/// Sums over samples.
struct Totals {
  double loss = 0;
  std::int64_t correct = 0, samples = 0;
  bool updated = true;  // by train(): false where an overflow forbade it and nothing has changed

  void add(const Totals& other) {
    loss += other.loss, correct += other.correct, samples += other.samples;
  }
  double mean_loss() const { return loss / static_cast<double>(samples); }
  double accuracy() const { return static_cast<double>(correct) / static_cast<double>(samples); }
};

/// Which minibatch: where it lies in which epoch's order, and its number over the whole run.
struct Minibatch {
  std::int64_t number = 0;
  std::int64_t epoch = 0;
  std::int64_t start = 0, samples = 0;
};

class Trainer {
 public:
  /// `spec` is validated. `data` may be null where `backend` computes nothing.
  Trainer(const RunSpec& spec, const WideResNetConfig& config, const ImageDataset* data,
          Backend& backend, std::unique_ptr<MemorySource> memory, bool log_events = false);

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
  /// Test samples [first, first + count), count at most evaluation_part().
  Totals evaluate(std::int64_t first, std::int64_t count);
  /// Re-estimates the batch-norm statistics that evaluation uses, until the next train(), with the
  /// current weights: their plain average over parts of training samples, in the data set's order,
  /// not augmented. Called for [0, part), [part, 2 part), ..., part being evaluation_part(); the
  /// last may be smaller. Training's own running statistics stay as they are.
  void recalibrate(std::int64_t first, std::int64_t count);
  /// Samples of one evaluation part: the largest part of a minibatch.
  std::int64_t evaluation_part() const;

  /// Logits (count, classes) and loss of given images, in training mode without an update,
  /// gradients left in the store; for tests. `images`: (count, h, w, c) f32.
  Totals forward_backward(const float* images, const std::int32_t* labels, std::int64_t count,
                          float* logits);

  const Chain& chain() const { return model_.chain(); }
  /// Instead of the spec's checkpointing plan.
  void use_plan(std::unique_ptr<RetentionPlan> plan) { retention_ = std::move(plan); }

  Ledger& ledger() { return ledger_; }
  const Ledger& ledger() const { return ledger_; }
  ParameterStore& parameters() { return *parameters_; }
  RunningStatistics& running() { return running_; }
  LossScaler& loss_scaler() { return *scaler_; }
  TensorOps& ops() { return backend_.tensor_ops(); }
  const RunSpec& spec() const { return spec_; }

  /// Peaks over all minibatches, and over all evaluation parts.
  MemoryRecord training_record, evaluation_record;
  /// Multiply-adds of the last minibatch, and of the last evaluation part.
  MultiplyAdds work;

 private:
  struct Staged {
    Block labels;
    Value images;
  };
  Totals update(const Minibatch& minibatch, float learning_rate);
  Context context(Tape* tape, Pass pass);
  Staged stage(Context& context, const PartRequest& request);
  Totals read_sums(std::int64_t samples);

  RunSpec spec_;
  const ImageDataset* data_;
  ImageFormat format_;
  Backend& backend_;
  PrecisionPolicy precision_;
  std::unique_ptr<LossScaler> scaler_;
  std::unique_ptr<BatchPlan> batch_plan_;
  std::unique_ptr<Optimizer> optimizer_;
  Ledger ledger_;
  std::unique_ptr<ParameterStore> parameters_;
  RunningStatistics running_;
  WideResNet model_;
  std::unique_ptr<RetentionPlan> retention_;
  Block sums_;  // LossSums
  std::int64_t updates_ = 0;
};

/// The network of `spec`, for images of `format`.
WideResNetConfig network_of(const RunSpec& spec, const ImageFormat& format = {});

}  // namespace memfloor

// A whole training: epochs, evaluation, curve, snapshots, progress. Resumable and interruptible.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "suite/recipe.h"
#include "suite/session.h"
#include "suite/snapshot.h"

namespace memfloor {

struct TrainingOptions {
  std::string snapshot_path;        // empty: none
  std::int64_t snapshot_every = 0;  // minibatches; 0: only when interrupted
  bool resume = false;              // continue from snapshot_path, where it exists
  std::string
      loss_log;  // one JSON object a line and minibatch: {"update": 1, "loss": ...}; empty: none
};

struct TrainingOutcome {
  TrainingState state;
  bool interrupted = false;  // by SIGINT or SIGTERM; the snapshot, if any, is written
  double step_seconds_median = 0, terms_per_second = 0;  // medians over steps
  nlohmann::json final_quality = nlohmann::json::object();
  std::int64_t averaged_epochs = 0;  // whose weights were averaged at the end; 0: none
};

class TrainingRun {
 public:
  TrainingRun(Session& session, TrainingOptions options);
  TrainingOutcome run();

  std::int64_t total_updates() const { return total_updates_; }
  /// Removes the files of weights that were to be averaged.
  void remove_epoch_files() const;

 private:
  // After its epochs or its updates, whichever come first: skipped minibatches count in epochs.
  bool done(const TrainingState& state) const;
  float learning_rate(std::int64_t update) const;
  // Weights are kept for averaging beside the snapshot; where there is none nothing is averaged.
  bool is_averaged(std::int64_t epoch) const {
    return !options_.snapshot_path.empty() && averaged_.contain(epoch);
  }
  std::string epoch_file(std::int64_t epoch) const;
  // Those that there are.
  std::vector<std::string> epoch_files() const;
  void finish(TrainingOutcome& outcome);

  Session& session_;
  TrainingOptions options_;
  const Recipe& recipe_;
  std::int64_t updates_per_epoch_, total_updates_;  // where none is skipped
  AveragedEpochs averaged_;
};

/// Re-estimates the batch-norm statistics for evaluation, as the spec's bn_recalibrate says.
void recalibrate_all(Trainer& trainer);

/// recalibrate_all(), then the current weights on the whole evaluation set.
Totals evaluate_all(Trainer& trainer);

}  // namespace memfloor

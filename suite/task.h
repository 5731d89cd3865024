// What is trained on what: a data set, how an epoch is cut into minibatches, and the network that
// reads them. The trainer knows no more of a workload than this.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "backends/classifier.h"
#include "data_loaders/image_dataset.h"
#include "engine/batch_plan.h"
#include "engine/context.h"

namespace memfloor {

class Trainer;

/// Which minibatch: its number over the whole run, and where it lies in which epoch.
struct Minibatch {
  std::int64_t number = 0;
  std::int64_t epoch = 0;
  std::int64_t start = 0;  // of its samples in the epoch's order, or which of the epoch's batches
  std::int64_t samples = 0;
};

/// Sums over loss terms: samples, or target tokens.
struct Totals {
  double loss = 0;
  std::int64_t correct = 0, terms = 0;
  bool updated = true;  // by train(): false where an overflow forbade it and nothing has changed

  void add(const Totals& other) {
    loss += other.loss, correct += other.correct, terms += other.terms;
  }
  double mean_loss() const { return loss / static_cast<double>(terms); }
  double accuracy() const { return static_cast<double>(correct) / static_cast<double>(terms); }
};

/// Where losses and hits are added, and what the loss's gradient is multiplied by.
struct LossTarget {
  LossSums* sums;  // device memory
  float gradient_scale;
};

/// A model and its loss.
class Network {
 public:
  virtual ~Network() = default;
  virtual const Chain& chain() const = 0;
  /// Takes the samples that `request` names from the data set and runs the model on them, and where
  /// there is a target their loss, with which backward begins. Returns what has to live until
  /// backward is done.
  virtual std::vector<Block> run(Context& context, const PartRequest& request,
                                 const std::optional<LossTarget>& loss) const = 0;
};

class Task {
 public:
  virtual ~Task() = default;

  virtual std::int64_t minibatches_per_epoch() const = 0;
  virtual Minibatch minibatch(std::int64_t number) const = 0;
  /// Minibatches that between them have every shape that occurs in training. Those that may take
  /// the most memory come first: what is planned for them has room for the others.
  virtual std::vector<Minibatch> every_shape() const = 0;
  /// Equal names promise equal sequences of allocations.
  virtual std::string shape_name(const Minibatch& minibatch) const = 0;
  /// What the summed loss is divided by: samples, or target tokens.
  virtual std::int64_t loss_terms(const Minibatch& minibatch) const = 0;
  /// Memory that each sample takes, relative to the others: what a batch plan cuts by.
  virtual std::vector<std::int64_t> sample_sizes(const Minibatch& minibatch) const = 0;
  /// The largest part's samples times their largest size; 0: a minibatch is one part.
  virtual std::int64_t part_limit() const = 0;

  /// All of the evaluation set, part by part; the same for the training samples that batch norm is
  /// recalibrated with.
  virtual std::vector<Part> evaluation_parts() const = 0;
  virtual std::vector<Part> recalibration_parts() const { return {}; }
  virtual std::string shape_name(const Part& evaluation_part) const = 0;
  virtual std::int64_t loss_terms(const Part& evaluation_part) const = 0;

  virtual std::unique_ptr<Network> make_network(ParameterStore& parameters,
                                                RunningStatistics& running,
                                                const PrecisionPolicy& precision) const = 0;
  /// What throughput counts: "images", "target_tokens".
  virtual const char* unit() const = 0;
  /// What evaluation's totals say: test_accuracy (or null), test_loss, ...; and that for people.
  virtual nlohmann::json quality(const Totals& totals) const = 0;
  virtual std::string quality_text(const nlohmann::json& quality) const = 0;

  /// What only the end of a training is worth, as keys of a result's quality: translates and scores
  /// the test set with the trainer's weights.
  virtual nlohmann::json final_quality(Trainer& trainer) const = 0;

  /// Sentences that a reader of the run's result must see.
  virtual std::vector<std::string> notes() const { return {}; }

  /// What identifies the data in a result file; null without data.
  virtual nlohmann::json provenance() const = 0;
};

/// One of every shape that occurs among evaluation parts.
std::vector<Part> every_shape(const Task& task, const std::vector<Part>& parts);

}  // namespace memfloor

// Translation: a DynamicConv on parallel text, batch by batch of sentences of like length.
#pragma once

#include "data_loaders/token_batches.h"
#include "models/dynamic_conv.h"
#include "suite/run_spec.h"
#include "suite/task.h"

namespace memfloor {

class TranslationTask final : public Task {
 public:
  /// `spec` is validated. Without a corpus the task only makes networks.
  TranslationTask(const RunSpec& spec, std::shared_ptr<const TranslationCorpus> corpus);

  /// A minibatch's start is the number of its batch; `samples` may be fewer than the batch has.
  std::int64_t minibatches_per_epoch() const override { return batches_->count(); }
  Minibatch minibatch(std::int64_t number) const override;
  std::vector<Minibatch> every_shape() const override;
  std::string shape_name(const Minibatch& minibatch) const override;
  std::int64_t loss_terms(const Minibatch& minibatch) const override;
  std::vector<std::int64_t> sample_sizes(const Minibatch& minibatch) const override;
  std::int64_t part_limit() const override { return part_limit_; }

  /// Of the validation set.
  std::vector<Part> evaluation_parts() const override { return evaluation_parts_; }
  std::string shape_name(const Part& part) const override;
  std::int64_t loss_terms(const Part& part) const override;

  std::unique_ptr<Network> make_network(ParameterStore& parameters, RunningStatistics& running,
                                        const PrecisionPolicy& precision) const override;
  const char* unit() const override { return "target_tokens"; }
  nlohmann::json quality(const Totals& totals) const override;
  std::string quality_text(const nlohmann::json& quality) const override;
  nlohmann::json final_quality(Trainer& trainer) const override;
  nlohmann::json provenance() const override;

  const TranslationCorpus& corpus() const { return *corpus_; }
  /// Says which training pairs are too long.
  std::vector<std::string> notes() const override;
  /// The pairs of a part: of the training batch `batch`, or of the evaluation's order.
  std::span<const std::int32_t> training_pairs(std::int64_t batch, const Part& part) const {
    return batches_->sentences(batch).subspan(part.first, part.count);
  }
  std::span<const std::int32_t> evaluation_pairs(const Part& part) const {
    return std::span(evaluation_order_).subspan(part.first, part.count);
  }

 private:
  DynamicConvConfig config_;
  std::shared_ptr<const TranslationCorpus> corpus_;
  std::int64_t part_limit_, test_sentences_;
  bool shuffle_;
  std::optional<TokenBatches> batches_;
  std::vector<std::int32_t> evaluation_order_;
  std::vector<Part> evaluation_parts_;
};

/// All pairs of a split, in batches of at most so many tokens and sentences (0: as many as fit);
/// one that is longer than the limit raises it, for none may be missing from a figure of quality.
TokenBatches evaluation_batches(const TranslationCorpus& corpus, Split split,
                                std::int64_t max_tokens, std::int64_t max_sentences = 0);

/// The network of such a task; decoding uses its model.
class TranslationNetwork final : public Network {
 public:
  TranslationNetwork(const DynamicConvConfig& config, const TranslationTask& task,
                     ParameterStore& parameters)
      : task_(task), model_(config, parameters) {}
  const Chain& chain() const override { return model_.chain(); }
  std::vector<Block> run(Context& context, const PartRequest& request,
                         const std::optional<LossTarget>& loss) const override;
  const DynamicConv& model() const { return model_; }

 private:
  const TranslationTask& task_;
  DynamicConv model_;
};

}  // namespace memfloor

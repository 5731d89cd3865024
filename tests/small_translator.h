// A small DynamicConv with a store and an optimizer but no trainer, and sentences for it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/dynamic_conv.h"
#include "techniques/registry.h"

namespace memfloor::testing {

/// Sentence pairs: entries of both vocabularies, and for every target row the one that follows.
struct SentencePairs {
  std::shared_ptr<const Sequences> source, target;
  std::vector<std::int32_t> source_tokens, target_tokens, labels;

  std::int64_t count() const { return source->count(); }
  /// The pairs of these numbers, in this order.
  SentencePairs chosen(const std::vector<std::int64_t>& numbers) const;
  SentencePairs part(std::int64_t first, std::int64_t count) const;
};

std::shared_ptr<const Sequences> sequences_of(const std::vector<std::int64_t>& lengths);

/// Pairs of 1 to 12 random entries a sentence.
SentencePairs random_pairs(std::int64_t count, const DynamicConvConfig& config, std::uint32_t seed);

/// 24 channels, 2 heads, 2 + 2 layers; a target vocabulary of more than one tile, and not of whole
/// tiles.
DynamicConvConfig small_config();

class SmallTranslator {
 public:
  struct Options {
    DynamicConvConfig config = small_config();
    std::string precision = "fp32";
    int threads = 2;
    SparsityChoice sparsity{};
    std::uint32_t seed = 1;  // of the weights
  };
  explicit SmallTranslator(const Options& options);

  /// A minibatch cut into `parts` parts of equally many pairs: its gradients stay in the store.
  /// `plan` as in --checkpoint.
  LossSums gradients(const SentencePairs& pairs, std::int64_t parts = 1,
                     const std::string& plan = "none");
  void update(float learning_rate);
  LossSums evaluate(const SentencePairs& pairs);
  void in_evaluation(const std::function<void(Context&)>& body);
  /// The data of a value that `make` computes in evaluation.
  std::vector<float> evaluated(const std::function<Value(Context&)>& make);
  /// What the decoder makes of the target rows.
  Value run(Context& context, const SentencePairs& pairs) const;

  /// Every parameter's gradient, in canonical order, one after another.
  std::vector<float> all_gradients() const;
  std::vector<float> gradient(ParameterStore::Handle handle) const;

  /// Of the last gradients().
  const MultiplyAdds& work() const { return work_; }

  ParameterStore& parameters() { return *store_; }
  const DynamicConv& model() const { return model_; }

 private:
  Context context(const RetentionPlan& plan, Tape* tape, Pass pass);

  PrecisionPolicy precision_;
  std::shared_ptr<Backend> backend_;
  Ledger ledger_;
  RunningStatistics running_;
  std::unique_ptr<ParameterStore> store_;
  DynamicConv model_;
  Adam adam_{{.beta1 = 0.9f, .beta2 = 0.98f, .epsilon = 1e-8f, .weight_decay = 1e-4f}};
  std::int64_t updates_ = 0;
  MultiplyAdds work_;
};

}  // namespace memfloor::testing

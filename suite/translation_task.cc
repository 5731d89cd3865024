#include "suite/translation_task.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "suite/models.h"
#include "suite/translate.h"
#include "techniques/registry.h"

namespace memfloor {
namespace {

// Of the lengths of both sides, in order: all that allocations depend on.
std::string shape_of(const TranslationCorpus& corpus, Split split,
                     std::span<const std::int32_t> pairs) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const std::int32_t pair : pairs)
    for (const Side side : {Side::source, Side::target})
      hash = (hash ^ static_cast<std::uint64_t>(corpus.length(split, side, pair))) * 0x100000001b3u;
  char text[40];
  std::snprintf(text, sizeof text, "%zu/%016llx", pairs.size(),
                static_cast<unsigned long long>(hash));
  return text;
}

std::int64_t target_tokens(const TranslationCorpus& corpus, Split split,
                           std::span<const std::int32_t> pairs) {
  std::int64_t sum = 0;
  for (const std::int32_t pair : pairs) sum += corpus.length(split, Side::target, pair);
  return sum;
}

std::vector<std::int64_t> sizes_of(const TranslationCorpus& corpus, Split split,
                                   std::span<const std::int32_t> pairs) {
  std::vector<std::int64_t> sizes;
  for (const std::int32_t pair : pairs)
    sizes.push_back(std::max(corpus.length(split, Side::source, pair),
                             corpus.length(split, Side::target, pair)));
  return sizes;
}

}  // namespace

TokenBatches evaluation_batches(const TranslationCorpus& corpus, Split split,
                                std::int64_t max_tokens, std::int64_t max_sentences) {
  for (std::int64_t pair = 0; pair < corpus.size(split); ++pair)
    for (const Side side : {Side::source, Side::target})
      max_tokens = std::max(max_tokens, corpus.length(split, side, pair));
  BatchRules rules;
  rules.max_tokens = max_tokens, rules.max_sentences = max_sentences;
  return TokenBatches::in_order(corpus, split, rules);
}

TranslationTask::TranslationTask(const RunSpec& spec,
                                 std::shared_ptr<const TranslationCorpus> corpus)
    : config_(make_dynamic_conv_config(spec)),
      corpus_(std::move(corpus)),
      part_limit_(spec.microbatch_tokens == spec.max_tokens ? 0 : spec.microbatch_tokens),
      test_sentences_(spec.test_sentences),
      shuffle_(spec.order == "shuffled") {
  if (!corpus_) return;
  config_.source_vocabulary = corpus_->vocabulary(Side::source);
  config_.target_vocabulary = corpus_->vocabulary(Side::target);
  BatchRules rules;
  rules.max_tokens = spec.max_tokens;
  batches_ =
      TokenBatches::shuffled(*corpus_, Split::train, static_cast<std::uint32_t>(spec.seed), rules);
  const TokenBatches evaluation = evaluation_batches(*corpus_, Split::valid, spec.max_tokens);
  const std::unique_ptr<BatchPlan> plan = make_batch_plan(part_limit_);
  for (std::int64_t batch = 0; batch < evaluation.count(); ++batch) {
    const std::span<const std::int32_t> pairs = evaluation.sentences(batch);
    const auto before = static_cast<std::int64_t>(evaluation_order_.size());
    evaluation_order_.insert(evaluation_order_.end(), pairs.begin(), pairs.end());
    for (const Part& part : plan->parts(sizes_of(*corpus_, Split::valid, pairs)))
      evaluation_parts_.push_back({before + part.first, part.count});
  }
}

Minibatch TranslationTask::minibatch(std::int64_t number) const {
  const std::int64_t epoch = number / batches_->count(), position = number % batches_->count();
  const std::int64_t batch =
      shuffle_ ? batches_->batch_at(static_cast<std::uint32_t>(epoch), position) : position;
  return {number, epoch, batch, static_cast<std::int64_t>(batches_->sentences(batch).size())};
}

std::vector<Minibatch> TranslationTask::every_shape() const {
  std::vector<Minibatch> shapes;
  std::set<std::string> seen;
  for (std::int64_t batch = batches_->count() - 1; batch >= 0; --batch) {  // longest first
    const Minibatch minibatch{0, 0, batch,
                              static_cast<std::int64_t>(batches_->sentences(batch).size())};
    if (seen.insert(shape_name(minibatch)).second) shapes.push_back(minibatch);
  }
  return shapes;
}

std::string TranslationTask::shape_name(const Minibatch& minibatch) const {
  return "minibatch/" +
         shape_of(*corpus_, Split::train, training_pairs(minibatch.start, {0, minibatch.samples}));
}

std::int64_t TranslationTask::loss_terms(const Minibatch& minibatch) const {
  return target_tokens(*corpus_, Split::train,
                       training_pairs(minibatch.start, {0, minibatch.samples}));
}

std::vector<std::int64_t> TranslationTask::sample_sizes(const Minibatch& minibatch) const {
  return sizes_of(*corpus_, Split::train, training_pairs(minibatch.start, {0, minibatch.samples}));
}

std::string TranslationTask::shape_name(const Part& part) const {
  return "evaluation/" + shape_of(*corpus_, Split::valid, evaluation_pairs(part));
}

std::int64_t TranslationTask::loss_terms(const Part& part) const {
  return target_tokens(*corpus_, Split::valid, evaluation_pairs(part));
}

std::unique_ptr<Network> TranslationTask::make_network(ParameterStore& parameters,
                                                       RunningStatistics&,
                                                       const PrecisionPolicy&) const {
  return std::make_unique<TranslationNetwork>(config_, *this, parameters);
}

nlohmann::json TranslationTask::quality(const Totals& totals) const {
  return {{"test_accuracy", nullptr},
          {"test_loss", totals.mean_loss()},
          {"perplexity", std::exp(totals.mean_loss())}};
}

std::string TranslationTask::quality_text(const nlohmann::json& quality) const {
  char text[96];
  std::snprintf(text, sizeof text, "validation perplexity %.2f, loss %.4f a token",
                quality["perplexity"].get<double>(), quality["test_loss"].get<double>());
  return text;
}

nlohmann::json TranslationTask::final_quality(Trainer& trainer) const {
  return score_translation(trainer, *this, test_sentences_);
}

std::vector<std::string> TranslationTask::notes() const {
  std::vector<std::string> notes;
  if (const nlohmann::json corpus = provenance();
      corpus.contains("notes")) {  // prepared from files
    notes.push_back(concat("the corpus is ", corpus["name"].get<std::string>(), ", ",
                           corpus_->size(Split::train), " pairs to train on"));
    for (const nlohmann::json& note : corpus["notes"]) notes.push_back(note.get<std::string>());
  }
  if (const std::string skipped = batches_->skipped_note(); !skipped.empty())
    notes.push_back(skipped);
  return notes;
}

nlohmann::json TranslationTask::provenance() const {
  return corpus_ ? corpus_->provenance() : nlohmann::json();
}

std::vector<Block> TranslationNetwork::run(Context& context, const PartRequest& request,
                                           const std::optional<LossTarget>& loss) const {
  const bool trains = request.split == Split::train;
  const Split split = trains ? Split::train : Split::valid;
  const Part part{request.first, request.count};
  const std::span<const std::int32_t> pairs =
      trains ? task_.training_pairs(request.minibatch_start, part) : task_.evaluation_pairs(part);
  const auto sequences = [&](Side side) {
    return std::make_shared<const Sequences>(
        Sequences{first_rows(task_.corpus(), split, side, pairs)});
  };
  const auto source = sequences(Side::source), target = sequences(Side::target);

  std::vector<Block> staged;
  for (const auto& [rows, label] : {std::pair{source->rows(), "source tokens"},
                                    {target->rows(), "decoder inputs"},
                                    {target->rows(), "labels"}})
    staged.push_back(context.ledger.allocate(rows * 4, Category::input, label));
  const auto tokens = [&](std::size_t i) { return static_cast<std::int32_t*>(staged[i].data()); };
  std::vector<DeviceArray> arrays;
  for (const Block& block : staged) arrays.push_back({block.data(), block.bytes()});
  context.backend.tensor_ops().on_host(arrays, [&](const std::vector<void*>& host) {
    const auto at = [&](std::size_t i) { return static_cast<std::int32_t*>(host[i]); };
    load_part(task_.corpus(), split, pairs, at(0), at(1), at(2));
  });

  Value x = model_.forward(context, make_text(source, tokens(0)), make_text(target, tokens(1)));
  if (loss) model_.loss(context, std::move(x), tokens(2), loss->sums, loss->gradient_scale);
  return staged;
}

}  // namespace memfloor

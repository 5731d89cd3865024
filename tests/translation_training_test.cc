// Training DynamicConv through the trainer: predicted bytes are measured, results depend on neither
// threads nor plans, every combination of techniques learns the toy language.
#include <gtest/gtest.h>

#include <cmath>

#include "core/safetensors.h"
#include "suite/presets.h"
#include "suite/training_run.h"
#include "techniques/registry.h"
#include "tests/op_testing.h"
#include "tests/reference_net.h"
#include "tests/small_translation.h"
#include "tests/temporary_folder.h"

namespace memfloor::testing {
namespace {

RunSpec translation() {
  RunSpec spec;
  spec.model = "dynamic_conv";
  return spec;
}

std::vector<RunSpec> combinations_and_leanest() {
  std::vector<RunSpec> specs;
  for (const RunSpec& spec : technique_combinations(translation()))
    specs.push_back(scaled_down(spec));
  RunSpec leanest = translation();
  set_from_preset(leanest, "leanest");
  specs.push_back(scaled_down(leanest));
  return specs;
}

Totals train(const Session& session, std::int64_t number, float rate = 2e-3f) {
  return session.trainer->train(session.task->minibatch(number), rate);
}

// ---- memory

void expect_measured_as_predicted(const Session& session) {
  EXPECT_EQ(prediction_difference(session.prediction, *session.trainer), "");
  EXPECT_EQ(session.trainer->training_record, session.prediction.training);
  EXPECT_EQ(session.trainer->evaluation_record, session.prediction.evaluation);
}

// One whole epoch of ragged minibatches through the arena, every phase planned when it begins.
TEST(TranslationMemory, EveryCombinationIsMeasuredAsPredicted) {
  for (const RunSpec& spec : combinations_and_leanest()) {
    SCOPED_TRACE(case_name(validated(spec)));
    const Session session = translation_session(spec, kFewSentences, Planned::on_demand);
    ASSERT_GT(session.task->minibatches_per_epoch(), 5);
    ASSERT_EQ(session.task->every_shape().size(),
              static_cast<std::size_t>(session.task->minibatches_per_epoch()));
    for (std::int64_t i = 0; i < session.task->minibatches_per_epoch(); ++i) train(session, i);
    session.trainer->move_pattern();
    evaluate_all(*session.trainer);
    EXPECT_TRUE(session.task->final_quality(*session.trainer).contains("bleu"));  // on no plan
    expect_measured_as_predicted(session);
  }
}

// Minibatches that are decisive for the peaks suffice to measure them.
TEST(TranslationMemory, DecisiveMinibatchesReachEveryPeak) {
  for (const char* preset : {"", "paper-best"}) {
    RunSpec spec = translation();
    if (*preset) set_from_preset(spec, preset);
    const Session session = translation_session(scaled_down(spec), kFewSentences);
    EXPECT_LT(session.prediction.decisive.size(), session.task->every_shape().size());
    run_decisive(*session.trainer, session.prediction, 1e-3f);
    expect_measured_as_predicted(session);
  }
}

TEST(TranslationMemory, BudgetOfThePeakSufficesAndOneByteLessDoesNot) {
  RunSpec spec = translation_spec();
  const Prediction free = translation_session(spec, kFewSentences).prediction;
  spec.memory_budget = std::max(free.training.peak_total, free.evaluation.peak_total);
  const Session session = translation_session(spec, kFewSentences);
  run_decisive(*session.trainer, session.prediction, 1e-3f);
  expect_measured_as_predicted(session);
  --spec.memory_budget;
  EXPECT_THROW(translation_session(spec, kFewSentences), BudgetExceeded);
}

// ---- full size, from the prediction alone

Prediction predicted(RunSpec spec) {
  spec.sentence_length = 25, spec.threads = 1;
  return predict_session(spec).prediction;
}

double ratio(std::int64_t a, std::int64_t b) {
  return static_cast<double>(a) / static_cast<double>(b);
}

// The figures of docs/memory-accounting.md, for 160 pairs of 25 tokens. PyTorch's activation,
// without stored dropout masks, was measured as 1,442 MB.
TEST(TranslationMemory, FullSize) {
  const Prediction baseline = predicted(translation());
  const MemoryRecord& table = baseline.training;
  EXPECT_EQ(table.paper_model(), 154740736);
  EXPECT_EQ(table.paper_model(), 38685184 * 4);
  EXPECT_EQ(table.paper_optimizer(), 464222208);
  EXPECT_EQ(table.paper_activation(), 1440640000);
  EXPECT_NEAR(ratio(table.paper_activation(), 1442000000), 1, 0.03);
  EXPECT_EQ(baseline.work_terms, 160 * 25);

  RunSpec spec = translation();
  set_from_preset(spec, "paper-best");
  const MemoryRecord best = predicted(spec).training;
  spec = translation();
  set_from_preset(spec, "leanest");
  const MemoryRecord leanest = predicted(spec).training;
  std::printf("  paper-best: %.2fx in paper.total, %.2fx in peak_total; leanest: %.2fx, %.2fx\n",
              ratio(table.paper_total(), best.paper_total()),
              ratio(table.peak_total, best.peak_total),
              ratio(table.paper_total(), leanest.paper_total()),
              ratio(table.peak_total, leanest.peak_total));
  EXPECT_GE(ratio(table.paper_total(), best.paper_total()), 8.7);
  EXPECT_GE(ratio(table.peak_total, best.peak_total), 8.7);
  EXPECT_GE(ratio(table.peak_total, leanest.peak_total), 16);
}

// ---- results

std::string trained(const RunSpec& spec, int updates) {
  const Session session = translation_session(spec, kFewSentences);
  for (int i = 0; i < updates; ++i) train(session, i);
  return state_bytes(*session.trainer);
}

TEST(TranslationTraining, DoesNotDependOnThreads) {
  for (const char* precision : {"fp32", "bf16"}) {
    RunSpec spec = translation_spec(precision, 1);
    spec.sparsity = 0.5, spec.sparse_scope = "all", spec.microbatch_tokens = 150;
    const std::string one = trained(spec, 2);
    for (const int threads : {2, 3}) {
      spec.threads = threads;
      EXPECT_TRUE(trained(spec, 2) == one) << precision << ", " << threads << " threads";
    }
    spec.seed = 2;
    EXPECT_FALSE(trained(spec, 2) == one);
  }
}

// Dropout is on: a replay draws the masks again.
TEST(TranslationTraining, DoesNotDependOnThePlan) {
  for (const char* method : {"band", "direct"}) {
    RunSpec spec = translation_spec("bf16_mixed");
    spec.conv_impl = method;
    const std::string kept = trained(spec, 2);
    for (const char* plan : {"blocks", "sqrt", "segments:3/normalization",
                             "recursive/normalization", "plan:0-9[2-5],12,14-20"}) {
      spec.checkpoint = plan;
      EXPECT_TRUE(trained(spec, 2) == kept) << method << ", " << plan;
    }
  }
}

// Parts are weighed by their tokens, whatever their shapes: the gradient is the whole minibatch's.
TEST(TranslationTraining, PartsAddUpToTheMinibatch) {
  RunSpec spec = translation_spec();
  const auto gradients = [&](std::int64_t part_tokens) {
    spec.microbatch_tokens = part_tokens;
    const Session session = translation_session(spec, kFewSentences);
    Trainer& trainer = *session.trainer;
    const Totals totals = train(session, 0, 0);
    EXPECT_EQ(totals.terms, session.task->loss_terms(session.task->minibatch(0)));
    Floats all;
    for (std::size_t h = 0; h < trainer.parameters().specs().size(); ++h) {
      const Floats one = gradient_of(trainer.parameters(), static_cast<int>(h));
      all.insert(all.end(), one.begin(), one.end());
    }
    all.push_back(static_cast<float>(totals.mean_loss()));
    const std::unique_ptr<BatchPlan> plan = make_batch_plan(session.task->part_limit());
    const auto parts = plan->parts(session.task->sample_sizes(session.task->minibatch(0)));
    return std::pair{all, parts.size()};
  };
  const auto [whole, one] = gradients(0);
  EXPECT_EQ(one, 1u);
  std::size_t most = 1;
  for (const std::int64_t tokens : {200, 90, 1}) {
    const auto [cut, parts] = gradients(tokens);
    EXPECT_GT(parts, most);
    most = parts;
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      difference += std::pow(static_cast<double>(cut[i]) - whole[i], 2);
      size += std::pow(static_cast<double>(whole[i]), 2);
    }
    EXPECT_LT(std::sqrt(difference / size), 1e-5) << parts << " parts";
  }
}

// ---- learning

double perplexity(const Session& session) {
  return session.task->quality(evaluate_all(*session.trainer))["perplexity"].get<double>();
}

// A language of 16 words that is nearly word for word. Knowing nothing is a perplexity of 18.
TEST(TranslationTraining, LearnsTheToyLanguage) {
  const SyntheticTranslation language{.source_vocabulary = 20,
                                      .target_vocabulary = 20,
                                      .train_size = 1000,
                                      .valid_size = 40,
                                      .test_size = 8};
  RunSpec spec = translation_spec("bf16_mixed");
  spec.model = "dynamic_conv1_1_32", spec.max_tokens = 600;
  const Session session = translation_session(spec, language);
  const double before = perplexity(session);
  std::vector<double> losses;
  for (int i = 0; i < 120; ++i) losses.push_back(train(session, i, 5e-3f).mean_loss());
  const double after = perplexity(session);
  std::printf("  loss %.3f -> %.3f, perplexity %.2f -> %.2f\n", losses.front(), losses.back(),
              before, after);
  EXPECT_GT(before, 18);
  EXPECT_LT(losses.back(), 0.8 * losses.front());
  EXPECT_LT(after, 12);
}

constexpr int kUpdates = 30, kLast = 6;

// Mean loss over the last updates; the prediction holds, too.
double final_loss(const RunSpec& spec) {
  const Session session = translation_session(spec, kFewSentences);
  double sum = 0;
  for (int update = 0; update < kUpdates; ++update) {
    const Totals totals = train(session, update, 3e-3f);
    EXPECT_TRUE(std::isfinite(totals.loss)) << update;
    EXPECT_TRUE(totals.updated);
    if (update >= kUpdates - kLast) sum += totals.mean_loss() / kLast;
  }
  EXPECT_TRUE(std::isfinite(perplexity(session)));
  EXPECT_EQ(prediction_difference(session.prediction, *session.trainer), "");
  return sum;
}

// Chance is a loss of log(30) = 3.4.
TEST(TranslationTraining, EveryCombinationTrainsLikeTheBaseline) {
  std::vector<double> losses;
  for (const RunSpec& spec : combinations_and_leanest()) {
    losses.push_back(final_loss(spec));
    std::printf("  %s: loss %.3f\n", case_name(validated(spec)).c_str(), losses.back());
    const bool leanest = losses.size() == 17;
    EXPECT_NEAR(losses.back(), losses[0], leanest ? 0.25 : 0.1) << losses.size() - 1;
  }
  ASSERT_EQ(losses.size(), 17u);
  EXPECT_LT(losses[0], 3);
}

// ---- whole runs

TrainingOptions options_for(const std::string& snapshot, std::int64_t every = 0) {
  TrainingOptions options;
  options.snapshot_path = snapshot, options.snapshot_every = every;
  return options;
}

RunSpec whole_run() {
  RunSpec spec = translation_spec("bf16");
  spec.recipe = "short", spec.epochs = 4;  // of which the last three are averaged
  spec.sparsity = 0.6, spec.rewire_stop = 0.95;
  return spec;
}

TEST(TranslationRun, ResumedEqualsStraight) {
  const TemporaryFolder folder;
  const RunSpec spec = whole_run();
  const std::string path = folder / "snapshot";
  Session straight = translation_session(spec, kFewSentences);
  const std::int64_t epoch = straight.task->minibatches_per_epoch();
  const std::int64_t stop = 2 * epoch + 3;  // in the third epoch; the next would be after the end
  const TrainingOutcome whole = TrainingRun(straight, options_for(path, stop)).run();
  EXPECT_EQ(whole.averaged_epochs, 3);
  EXPECT_EQ(whole.state.curve.size(), 4u);
  for (const int later : {3, 4}) std::filesystem::remove(concat(path, ".epoch", later));

  Session second = translation_session(spec, kFewSentences);
  TrainingOptions options = options_for(path);
  options.resume = true;
  const TrainingOutcome rest = TrainingRun(second, options).run();
  EXPECT_EQ(rest.state.updates, 4 * epoch);
  EXPECT_EQ(rest.state.curve, whole.state.curve);
  EXPECT_EQ(rest.final_quality, whole.final_quality);
  EXPECT_TRUE(state_bytes(*second.trainer) == state_bytes(*straight.trainer));
}

// The files are those of the last epochs; the run's quality is the average's; then they go.
TEST(TranslationRun, AveragesTheLastEpochs) {
  for (const double sparsity : {0.0, 0.6}) {
    const TemporaryFolder folder;
    const std::string path = folder / "snapshot";
    RunSpec spec = whole_run();
    spec.precision = "fp32", spec.sparsity = sparsity;
    Session session = translation_session(spec, kFewSentences);
    TrainingRun run(session, options_for(path));
    const TrainingOutcome outcome = run.run();
    ASSERT_EQ(outcome.averaged_epochs, 3);
    std::vector<SafetensorsFile> files;
    for (const int epoch : {2, 3, 4})
      files.push_back(SafetensorsFile::open(concat(path, ".epoch", epoch)));
    EXPECT_EQ(folder.entries(), 3);
    const ParameterStore& store = session.trainer->parameters();
    double moved = 0;
    for (std::size_t h = 0; h < store.specs().size(); ++h) {
      const Floats averaged = weight_of(store, static_cast<int>(h));
      std::vector<Floats> values;
      for (const SafetensorsFile& file : files) {
        const TensorView& tensor = file.get(store.specs()[h].name);
        values.emplace_back(static_cast<std::size_t>(tensor.elements()));
        tensor.copy_to(values.back().data());
      }
      for (std::size_t i = 0; i < averaged.size(); ++i) {
        const double sum = static_cast<double>(values[0][i]) + values[1][i] + values[2][i];
        ASSERT_EQ(averaged[i], static_cast<float>(sum / 3)) << store.specs()[h].name;
        moved += std::abs(static_cast<double>(values[2][i]) - averaged[i]);
      }
    }
    EXPECT_GT(moved, 0);
    EXPECT_EQ(outcome.final_quality["perplexity"], perplexity(session));
    EXPECT_NE(outcome.final_quality["perplexity"], outcome.state.curve.back()["perplexity"]);
    EXPECT_GT(session.trainer->peak_with_weights, 0);
    run.remove_epoch_files();
    EXPECT_EQ(folder.entries(), 0);
  }
}

TEST(TranslationRun, ScoresTheTestSet) {
  RunSpec spec = translation_spec();
  spec.max_steps = 3, spec.test_sentences = 4;
  Session session = translation_session(spec, kFewSentences);
  const TrainingOutcome outcome = TrainingRun(session, {}).run();
  EXPECT_EQ(outcome.averaged_epochs, 0);
  const nlohmann::json& quality = outcome.final_quality;
  EXPECT_GE(quality["bleu"].get<double>(), 0);
  EXPECT_FALSE(quality["bleu_signature"].get<std::string>().empty());
  ASSERT_EQ(quality["samples"].size(), 4u);
  const auto& corpus = dynamic_cast<const TranslationTask&>(*session.task).corpus();
  EXPECT_EQ(quality["samples"][2]["reference"], corpus.references(Split::test)[2]);
}

TEST(TranslationRun, SkipsLongSentencesInTrainingOnly) {
  RunSpec spec = translation_spec();
  spec.max_tokens = 20;
  const Session session = translation_session(spec, kFewSentences);
  const auto& task = dynamic_cast<const TranslationTask&>(*session.task);
  ASSERT_EQ(task.notes().size(), 1u);
  EXPECT_NE(task.notes()[0].find("longer than 20 tokens are skipped"), std::string::npos);
  std::int64_t tokens = 0, longest = 0;
  for (std::int64_t pair = 0; pair < kFewSentences.valid_size; ++pair) {
    const std::int64_t length = task.corpus().length(Split::valid, Side::target, pair);
    tokens += length, longest = std::max(longest, length);
  }
  EXPECT_GT(longest, 20);
  EXPECT_EQ(evaluate_all(*session.trainer).terms, tokens);
  EXPECT_TRUE(translation_session(translation_spec(), kFewSentences).task->notes().empty());
}

}  // namespace
}  // namespace memfloor::testing

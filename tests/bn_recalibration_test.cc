// Batch norm's statistics, re-estimated before an evaluation: what they are, that training does not
// see them, what they need, and that they are worth it.
#include <gtest/gtest.h>

#include "suite/training_run.h"
#include "suite/weights_file.h"
#include "tests/op_testing.h"
#include "tests/reference_net.h"
#include "tests/temporary_folder.h"

namespace memfloor::testing {
namespace {

constexpr std::int64_t kTrain = 50, kTest = 17;

// Minibatches are the data set's own order, as recalibration reads it.
RunSpec plain_spec(std::int64_t samples, std::int64_t batch, std::int64_t microbatch) {
  RunSpec spec = small_spec("fp32", 2);
  spec.order = "sequential", spec.augment = false;
  spec.bn_recalibrate = samples;
  spec.batch_size = batch, spec.microbatch = microbatch;
  return spec;
}

// A session some updates into training. On the heap it trains on minibatches of any size.
Session trained(const RunSpec& spec, int updates = 4, bool on_heap = false) {
  Session session = small_session(spec, kTrain, kTest);
  if (on_heap) {
    session.trainer =
        std::make_unique<Trainer>(session.spec, *session.task, *session.backend, heap_memory());
    session.trainer->initialize();
  }
  for (int update = 0; update < updates; ++update)
    session.trainer->train({update, 0, update % 2 * 20, 20}, 0.05f);
  return session;
}

// Mean and variance of every batch norm, as evaluation uses them.
Floats evaluated(Trainer& trainer) {
  Floats values;
  const RunningStatistics& running = trainer.running();
  for (std::size_t h = 0; h < running.entries().size(); ++h) {
    const float* from = running.evaluated(static_cast<int>(h));
    values.insert(values.end(), from, from + 2 * running.entries()[h].channels);
  }
  return values;
}

// Batch statistics by another way: an update at rate 0 moves running statistics from 0 by 0.1 times
// them, exactly.
Floats tenth_of_batch_statistics(Trainer& trainer, std::int64_t first, std::int64_t count) {
  Tensor& committed = trainer.running().slab();
  std::fill_n(committed.data<float>(), committed.elements(), 0.0f);
  trainer.train({0, 0, first, count}, 0);
  return {committed.data<float>(), committed.data<float>() + committed.elements()};
}

TEST(BnRecalibration, OnePartOfAllDataGivesItsStatisticsExactly) {
  const Session session = trained(plain_spec(kTrain, kTrain, kTrain), 4, true);
  const Floats expected = tenth_of_batch_statistics(*session.trainer, 0, kTrain);
  recalibrate_all(*session.trainer);
  Floats ours = evaluated(*session.trainer);
  for (float& value : ours) value *= BatchNormRelu::kMomentum;
  EXPECT_EQ(ours, expected);
}

TEST(BnRecalibration, IsThePlainAverageOverParts) {
  const Session session = trained(plain_spec(30, 20, 8), 4, true);
  Trainer& trainer = *session.trainer;
  recalibrate_all(trainer);
  const Floats ours = evaluated(trainer);
  Doubles average(ours.size());
  for (const auto& [first, count] : {std::pair{0, 8}, {8, 8}, {16, 8}, {24, 6}}) {
    const Floats part = tenth_of_batch_statistics(trainer, first, count);
    for (std::size_t i = 0; i < part.size(); ++i)
      average[i] += part[i] / BatchNormRelu::kMomentum / 4;
  }
  EXPECT_LE(distance(ours, average), 1e-6);
}

TEST(BnRecalibration, TrainingDoesNotSeeIt) {
  Session with = trained(plain_spec(30, 20, 7)), without = trained(plain_spec(0, 20, 7));
  ASSERT_TRUE(state_bytes(*with.trainer) == state_bytes(*without.trainer));
  const double recalibrated = evaluate_all(*with.trainer).loss;
  const double running = evaluate_all(*without.trainer).loss;
  EXPECT_NE(recalibrated, running);
  EXPECT_TRUE(state_bytes(*with.trainer) == state_bytes(*without.trainer));
  for (Session* session : {&with, &without}) session->trainer->train({4, 0, 0, 20}, 0.05f);
  EXPECT_TRUE(state_bytes(*with.trainer) == state_bytes(*without.trainer));
  // Those statistics were for that evaluation: the next one has its own, or the running ones.
  EXPECT_EQ(evaluated(*with.trainer), evaluated(*without.trainer));
}

TEST(BnRecalibration, IsMeasuredAsPredictedAndCounted) {
  for (const char* precision : {"fp32", "bf16_mixed"}) {
    RunSpec spec = plain_spec(33, 20, 7);
    spec.precision = precision;
    Session session = trained(spec);
    evaluate_all(*session.trainer);
    EXPECT_EQ(session.trainer->training_record, session.prediction.training);
    EXPECT_EQ(session.trainer->evaluation_record, session.prediction.evaluation);
    // It needs what evaluation does not: batch statistics.
    spec.bn_recalibrate = 0;
    EXPECT_GT(session.prediction.evaluation.peak_total,
              small_session(spec, kTrain, kTest).prediction.evaluation.peak_total);
  }
}

TEST(BnRecalibration, TheBudgetCoversIt) {
  const Session session = trained(plain_spec(kTrain, 20, 20));
  Ledger& ledger = session.trainer->ledger();
  ledger.set_budget(session.prediction.evaluation.peak_total);
  recalibrate_all(*session.trainer);
  ledger.set_budget(session.prediction.evaluation.peak_total - 1);
  EXPECT_THROW(recalibrate_all(*session.trainer), BudgetExceeded);
}

// Running statistics of parts of two are of the last few samples and of weights that have moved on.
TEST(BnRecalibration, ImprovesEvaluationAfterTinyParts) {
  constexpr std::int64_t kTested = 30, kPart = 2;
  RunSpec spec = plain_spec(60, 8, kPart);
  spec.seed = 2;
  const Session session = small_session(spec, 80, kTested);
  double without = 0, with = 0;
  for (int update = 0; update < 21; ++update) {
    session.trainer->train({update, update / 10, update % 10 * 8, 8}, 0.1f);
    if (update < 11 || update % 3 != 2) continue;
    for (const Part& part : session.task->evaluation_parts())
      without += session.trainer->evaluate(part).loss;
    with += evaluate_all(*session.trainer).loss;
  }
  EXPECT_LT(with, 0.97 * without);
}

TEST(BnRecalibration, SavedWeightsHoldTheStatisticsOfTheReportedAccuracy) {
  const TemporaryFolder folder;
  RunSpec spec = plain_spec(30, 20, 2);
  spec.epochs = 2;
  TrainingOptions options;
  options.snapshot_path = folder / "snapshot", options.resume = true;
  options.snapshot_every = 6;  // after the last update
  const auto run = [&](const std::string& path) {
    Session session = small_session(spec, kTrain, kTest);
    const TrainingOutcome outcome = TrainingRun(session, options).run();
    Trainer& trainer = *session.trainer;
    save_weights(path, trainer.parameters(), trainer.running(), trainer.ops());
    return outcome.state.curve.back();
  };
  const nlohmann::json reported = run(folder / "weights");

  RunSpec plain = spec;
  plain.bn_recalibrate = 0;
  const Session reader = small_session(plain, kTrain, kTest);
  Trainer& trainer = *reader.trainer;
  load_weights(folder / "weights", trainer.parameters(), trainer.running(), trainer.ops(), true);
  const Totals totals = evaluate_all(trainer);
  EXPECT_EQ(totals.accuracy(), reported["test_accuracy"].get<double>());
  EXPECT_EQ(totals.mean_loss(), reported["test_loss"].get<double>());

  // A run that was stopped after its last evaluation saves the same.
  EXPECT_EQ(run(folder / "again"), reported);
  EXPECT_TRUE(read_file(folder / "again") == read_file(folder / "weights"));
}

TEST(BnRecalibration, RefusesMoreSamplesThanThereAre) {
  const std::string refusal =
      error_of<InputError>([] { small_session(plain_spec(kTrain + 1, 20, 20), kTrain, kTest); });
  EXPECT_NE(refusal.find("--bn-recalibrate 51 is more than the training set has: 50"),
            std::string::npos)
      << refusal;
}

TEST(GroupNormWeights, AreNotThoseOfBatchNorm) {
  const TemporaryFolder folder;
  const auto file = [&](const char* norm) { return folder / norm; };
  RunSpec spec = small_spec("fp32", 2);
  const auto session_of = [&](const char* norm) {
    spec.norm = norm;
    return small_session(spec, 20, 10);
  };
  const auto load = [&](const char* norm, const std::string& path) {
    const Session session = session_of(norm);
    Trainer& t = *session.trainer;
    load_weights(path, t.parameters(), t.running(), t.ops(), true);
    return evaluate_all(t).loss;
  };
  double loss = 0;
  for (const char* norm : {"batch", "group"}) {
    const Session session = session_of(norm);
    Trainer& t = *session.trainer;
    t.train({0, 0, 0, 20}, 0.05f);
    save_weights(file(norm), t.parameters(), t.running(), t.ops());
    loss = evaluate_all(t).loss;
  }
  EXPECT_EQ(load("group", file("group")), loss);
  const std::string refusal = error_of<InputError>([&] { load("group", file("batch")); });
  EXPECT_NE(refusal.find("was trained with batch norm"), std::string::npos) << refusal;
  EXPECT_THROW(load("batch", file("group")), InputError);  // no running statistics
}

}  // namespace
}  // namespace memfloor::testing

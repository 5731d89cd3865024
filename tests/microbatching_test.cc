// Microbatching: every size cuts every minibatch, and where no op looks across samples (group norm)
// the parts change nothing but the order of a few additions.
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "suite/training_run.h"
#include "techniques/registry.h"
#include "tests/op_testing.h"
#include "tests/reference_net.h"
#include "tests/temporary_folder.h"

namespace memfloor::testing {
namespace {

TEST(BatchPlan, PartsCoverEveryMinibatchInOrder) {
  for (std::int64_t batch = 1; batch <= 24; ++batch)
    for (std::int64_t microbatch = 1; microbatch <= batch; ++microbatch) {
      const std::unique_ptr<BatchPlan> plan = make_batch_plan(microbatch);
      for (std::int64_t samples = 1; samples <= batch; ++samples) {  // an epoch's last is smaller
        std::int64_t next = 0;
        for (const Part& part : plan->parts(std::vector<std::int64_t>(samples, 1))) {
          EXPECT_EQ(part.first, next);
          next += part.count;
          EXPECT_TRUE(part.count == microbatch || (next == samples && part.count < microbatch));
          EXPECT_GT(part.count, 0);
        }
        EXPECT_EQ(next, samples);
      }
    }
}

// A part's longest sample times its samples stays within the limit, where it is not a single one,
// and no part could have taken the first sample of the next.
TEST(BatchPlan, PartsOfUnequalSamplesStayWithinTheLimit) {
  const Philox random(1, Purpose::synthetic_data);
  for (std::uint32_t round = 0; round < 200; ++round) {
    std::vector<std::int64_t> sizes;
    for (std::uint32_t i = 0; i < 1 + round % 40; ++i)
      sizes.push_back(1 + uniform_below(random({round, i, 0, 0})[0], 30));
    const std::int64_t limit = 1 + uniform_below(random({round, 0, 1, 0})[0], 100);
    const auto cost = [&](std::int64_t first, std::int64_t count) {
      return count * *std::max_element(sizes.begin() + first, sizes.begin() + first + count);
    };
    std::int64_t next = 0;
    for (const Part& part : make_batch_plan(limit)->parts(sizes)) {
      EXPECT_EQ(part.first, next);
      EXPECT_TRUE(part.count == 1 || cost(part.first, part.count) <= limit);
      next += part.count;
      if (next < static_cast<std::int64_t>(sizes.size())) {
        EXPECT_GT(cost(part.first, part.count + 1), limit);
      }
    }
    EXPECT_EQ(next, static_cast<std::int64_t>(sizes.size()));
    EXPECT_EQ(make_batch_plan(0)->parts(sizes).size(), 1u);
  }
}

RunSpec group_norm_spec(const std::string& precision, std::int64_t batch, std::int64_t microbatch) {
  RunSpec spec = small_spec(precision, 2);
  spec.norm = "group";
  spec.batch_size = batch, spec.microbatch = microbatch;
  return spec;
}

class GroupNormParts : public ::testing::TestWithParam<const char*> {};

TEST_P(GroupNormParts, LeaveASamplesLogitsAlone) {
  constexpr std::int64_t kSamples = 30, kImage = 16 * 16 * 3, kClasses = 10;
  const RunSpec spec = validated(group_norm_spec(GetParam(), kSamples, kSamples));
  const std::shared_ptr<Backend> on = make_cpu_backend(2);
  const ImageTask task(spec, {16, 16, 3, 10}, DataSize{}, nullptr);
  Trainer trainer(spec, task, *on, heap_memory());
  trainer.initialize();
  const Floats images = numbers(kSamples * kImage, 1, 2);
  const std::vector<std::int32_t> labels(kSamples, 3);
  const auto logits_in_parts_of = [&](std::int64_t size) {
    Floats logits(kSamples * kClasses);
    for (std::int64_t first = 0; first < kSamples; first += size)
      forward_backward_images(trainer, images.data() + first * kImage, labels.data(),
                              std::min(size, kSamples - first), logits.data() + first * kClasses);
    return logits;
  };
  const Floats whole = logits_in_parts_of(kSamples);
  for (const std::int64_t size : {1, 4, 7, 10, 16})
    EXPECT_EQ(logits_in_parts_of(size), whole) << "in parts of " << size;
}

TEST_P(GroupNormParts, TrainTheSameOnAnyNumberOfThreads) {
  const auto bytes = [](int threads) {
    RunSpec spec = group_norm_spec(GetParam(), 20, 7);
    spec.threads = threads;
    Session session = small_session(spec, 60, 20);
    for (int update = 0; update < 3; ++update)
      session.trainer->train({update, 0, update * 20, 20}, 0.05f);
    return state_bytes(*session.trainer);
  };
  const std::string one = bytes(1);
  for (const int threads : {2, 5}) EXPECT_TRUE(bytes(threads) == one) << threads << " threads";
}

TEST_P(GroupNormParts, AreMeasuredAsPredicted) {
  Session session = small_session(group_norm_spec(GetParam(), 20, 7), 50, 17);
  for (std::int64_t start = 0; start < 50; start += 20)
    session.trainer->train({start / 20, 0, start, std::min<std::int64_t>(20, 50 - start)}, 0.1f);
  evaluate_all(*session.trainer);
  EXPECT_EQ(session.trainer->training_record, session.prediction.training);
  EXPECT_EQ(session.trainer->evaluation_record, session.prediction.evaluation);
}

INSTANTIATE_TEST_SUITE_P(, GroupNormParts, ::testing::Values("fp32", "bf16_mixed"),
                         [](const auto& p) { return std::string(p.param); });

// Every parameter's gradient of the first minibatch, augmented.
std::vector<Floats> gradients_in_parts_of(std::int64_t size) {
  Session session = small_session(group_norm_spec("fp32", 100, size), 100, 10);
  session.trainer->train({0, 0, 0, 100}, 0.1f);
  std::vector<Floats> gradients;
  const ParameterStore& parameters = session.trainer->parameters();
  for (std::size_t h = 0; h < parameters.specs().size(); ++h)
    gradients.push_back(gradient_of(parameters, static_cast<int>(h)));
  return gradients;
}

TEST(Microbatching, GradientsOfPartsSumToTheMinibatchs) {
  const std::vector<Floats> whole = gradients_in_parts_of(100);
  for (const std::int64_t size : {10, 7, 1}) {  // 10 x 10, 14 x 7 + 2, 100 x 1
    const std::vector<Floats> parts = gradients_in_parts_of(size);
    for (std::size_t h = 0; h < whole.size(); ++h)
      EXPECT_LE(distance(parts[h], whole[h]), 1e-5) << "parameter " << h << ", parts of " << size;
  }
}

// Batch norm over a single sample normalises over its pixels.
TEST(Microbatching, PartsOfOneTrain) {
  for (const char* norm : {"batch", "group"}) {
    RunSpec spec = small_spec("fp32", 2);
    spec.norm = norm, spec.microbatch = 1, spec.augment = false;
    Session session = small_session(spec, 20, 10);
    const double before = session.trainer->train({0, 0, 0, 20}, 0.05f).mean_loss();
    double after = 0;
    for (int update = 1; update < 15; ++update)
      after = session.trainer->train({update, 0, 0, 20}, 0.05f).mean_loss();
    EXPECT_LT(after, 0.95 * before) << norm;
  }
}

// The schedule counts updates, not parts.
TEST(Microbatching, LeavesTheScheduleAlone) {
  const auto rates = [](std::int64_t microbatch) {
    const TemporaryFolder folder;
    RunSpec spec = small_spec("fp32", 2);
    spec.microbatch = microbatch, spec.learning_rate = 0, spec.epochs = 2;
    spec.recipe = "short";
    Session session = small_session(spec, 50, 10);
    TrainingOptions options;
    options.loss_log = folder / "losses";
    TrainingRun(session, options).run();
    std::vector<double> rates;
    std::istringstream lines(read_file(options.loss_log));
    for (std::string line; std::getline(lines, line);)
      rates.push_back(nlohmann::json::parse(line)["learning_rate"]);
    return rates;
  };
  const std::vector<double> whole = rates(20);
  ASSERT_EQ(whole.size(), 6u);
  EXPECT_EQ(std::set<double>(whole.begin(), whole.end()).size(), 6u);
  EXPECT_EQ(rates(3), whole);
}

}  // namespace
}  // namespace memfloor::testing

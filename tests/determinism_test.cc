// Equal specs give equal bytes: again, with other numbers of threads, and across an interruption.
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>

#include "suite/training_run.h"
#include "tests/reference_net.h"
#include "tests/temporary_folder.h"

namespace memfloor::testing {
namespace {

// Weights, momentum and running statistics after `updates` minibatches.
std::string trained(Session session, int updates) {
  const std::int64_t batch = session.spec.batch_size;
  for (int update = 0; update < updates; ++update)
    session.trainer->train({update, 0, update * batch, batch}, 0.05f);
  return state_bytes(*session.trainer);
}

class Determinism : public ::testing::TestWithParam<const char*> {};

TEST_P(Determinism, AgainAndWithOtherThreads) {
  const auto bytes = [](const RunSpec& spec) { return trained(small_session(spec, 100, 20), 4); };
  const std::string one = bytes(small_spec(GetParam(), 1));
  for (const int threads : {1, 2, 5})
    EXPECT_TRUE(bytes(small_spec(GetParam(), threads)) == one) << threads << " threads";
  // The comparison sees a difference where there is one.
  RunSpec other = small_spec(GetParam(), 1);
  other.augment = false;
  EXPECT_FALSE(bytes(other) == one);
}

class DeterminismOfWrn28_2 : public ::testing::TestWithParam<const char*> {};

TEST_P(DeterminismOfWrn28_2, WithOtherThreads) {
  const auto bytes = [](int threads) {
    RunSpec spec;
    spec.precision = GetParam(), spec.threads = threads;
    spec.batch_size = 6;
    return trained(open_session(spec), 2);
  };
  const std::string one = bytes(1);
  for (const int threads : {2, 5}) EXPECT_TRUE(bytes(threads) == one) << threads << " threads";
}

// Interrupts the process, as ^C does, when image `reads` is read.
class InterruptingImages final : public ImageDataset {
 public:
  InterruptingImages(std::shared_ptr<const ImageDataset> images, int reads)
      : images_(std::move(images)), left_(reads) {}
  ImageFormat format() const override { return images_->format(); }
  std::int64_t size(Split split) const override { return images_->size(split); }
  void read_image(Split split, std::int64_t index, std::uint8_t* image) const override {
    if (--left_ == 0) std::raise(SIGINT);
    images_->read_image(split, index, image);
  }
  int label(Split split, std::int64_t index) const override { return images_->label(split, index); }
  nlohmann::json provenance() const override { return images_->provenance(); }

 private:
  std::shared_ptr<const ImageDataset> images_;
  mutable std::atomic<int> left_;
};

// Two epochs of three minibatches, the last of them smaller; test images likewise.
TEST_P(Determinism, InterruptedAndResumed) {
  const TemporaryFolder folder;
  RunSpec spec = small_spec(GetParam(), 2);
  spec.epochs = 2;
  spec.learning_rate = 0;  // the recipe's schedule
  spec.recipe = "short";
  const auto run = [&](Session& session, const std::string& path) {
    TrainingOptions options;
    options.snapshot_path = path, options.snapshot_every = 6, options.resume = true;
    return TrainingRun(session, options).run();
  };
  const std::string straight = folder / "straight", resumed = folder / "resumed";
  Session unbroken = small_session(spec, 50, 17);
  const TrainingOutcome whole = run(unbroken, straight);
  EXPECT_EQ(whole.state.updates, 6);
  EXPECT_EQ(whole.state.curve.size(), 2u);

  // While image 45 is read: in the ragged minibatch that ends the first epoch.
  Session first = small_session(spec, 50, 17);
  const auto& task = dynamic_cast<const ImageTask&>(*first.task);
  first.task = std::make_shared<ImageTask>(first.spec, task.data()->format(), task.size(),
                                           std::make_shared<InterruptingImages>(task.data(), 45));
  first.trainer = std::make_unique<Trainer>(first.spec, *first.task, *first.backend,
                                            arena_memory(first.prediction.layout));
  first.trainer->initialize();
  const TrainingOutcome half = run(first, resumed);
  ASSERT_TRUE(half.interrupted);
  ASSERT_EQ(half.state.updates, 3);
  const std::string snapshot = read_file(resumed);

  Session second = small_session(spec, 50, 17);
  const TrainingOutcome rest = run(second, resumed);
  EXPECT_FALSE(rest.interrupted);
  EXPECT_EQ(rest.state.curve, whole.state.curve);
  // The file holds weights, momentum, running statistics, curve and memory records.
  EXPECT_TRUE(read_file(straight) == read_file(resumed));

  // On another number of threads workspace may differ, results may not.
  write_file(resumed, snapshot);
  spec.threads = 1;
  Session other = small_session(spec, 50, 17);
  EXPECT_EQ(run(other, resumed).state.curve, whole.state.curve);
  EXPECT_TRUE(state_bytes(*other.trainer) == state_bytes(*unbroken.trainer));
}

INSTANTIATE_TEST_SUITE_P(, Determinism,
                         ::testing::Values("fp32", "fp16", "bf16", "fp16_master", "bf16_master",
                                           "fp16_mixed", "bf16_mixed"),
                         [](const auto& p) { return std::string(p.param); });
INSTANTIATE_TEST_SUITE_P(, DeterminismOfWrn28_2, ::testing::Values("fp32", "bf16_mixed", "fp16"),
                         [](const auto& p) { return std::string(p.param); });

}  // namespace
}  // namespace memfloor::testing

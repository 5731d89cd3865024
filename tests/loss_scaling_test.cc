// Loss scaling: the rule, and that an overflow changes nothing but the scale.
#include "techniques/precision/loss_scaling.h"

#include <gtest/gtest.h>

#include <cmath>

#include "suite/training_run.h"
#include "techniques/registry.h"
#include "tests/reference_net.h"
#include "tests/temporary_folder.h"

namespace memfloor::testing {
namespace {

TEST(LossScalerRule, DoublesAfterTheWindowAndHalvesOnOverflow) {
  DynamicLossScaler scaler(0, 3);
  EXPECT_EQ(scaler.scale(), 128);
  EXPECT_TRUE(scaler.checks());
  const auto scales = [&](const std::vector<bool>& finite) {
    std::vector<float> result;
    for (const bool f : finite) {
      EXPECT_EQ(scaler.accept(f), f);
      result.push_back(scaler.scale());
    }
    return result;
  };
  EXPECT_EQ(scales({true, true, true}), (std::vector<float>{128, 128, 256}));
  EXPECT_EQ(scales({true, true, false}), (std::vector<float>{256, 256, 128}));
  EXPECT_EQ(scales({true, true, true, false, false}), (std::vector<float>{128, 128, 256, 128, 64}));

  scaler.resume_from({32, 2});
  EXPECT_EQ(scales({true, true}), (std::vector<float>{64, 64}));
  scaler.resume_from({0x1p127f, 2});
  EXPECT_EQ(scales({true}), (std::vector<float>{0x1p127f}));
}

TEST(LossScalerRule, GivesUpBelowTheSmallestScale) {
  DynamicLossScaler scaler(0.0004, 1);
  EXPECT_FALSE(scaler.accept(false));
  EXPECT_FALSE(scaler.accept(false));
  const std::string sentence = error_of<Error>([&] { scaler.accept(false); });
  EXPECT_NE(sentence.find("below 0.0001: the training has diverged"), std::string::npos)
      << sentence;
}

TEST(LossScalerRule, OnlyFp16HasIt) {
  for (const std::string& name : precision_names()) {
    const bool fp16 = name.find("fp16") == 0 && name.find("bf16") == std::string::npos;
    const auto scaler = make_loss_scaler(make_precision(name), 0, 10);
    EXPECT_EQ(scaler->checks(), fp16) << name;
    EXPECT_EQ(scaler->scale(), fp16 ? 128 : 1) << name;
    EXPECT_EQ(make_precision(name).rounding,
              name == "fp16" || name == "bf16" ? Rounding::stochastic : Rounding::nearest);
  }
}

// ---- a minibatch that overflows

RunSpec spec_of(const std::string& precision, double loss_scale = 0) {
  RunSpec spec = small_spec(precision, 2);
  spec.loss_scale = loss_scale;
  spec.order = "sequential", spec.augment = false;
  return spec;
}
constexpr Minibatch kFirst{0, 0, 0, 20}, kSecond{1, 0, 20, 20};

// Images [first, last) are grey, all the same: the variances of a part of such images are next to
// nothing, and batch norm's backward multiplies by their inverse roots.
class GreyPart final : public ImageDataset {
 public:
  GreyPart(const ImageDataset& images, std::int64_t first, std::int64_t last)
      : images_(images), first_(first), last_(last) {}
  ImageFormat format() const override { return images_.format(); }
  std::int64_t size(Split split) const override { return images_.size(split); }
  void read_image(Split split, std::int64_t index, std::uint8_t* image) const override {
    if (index < first_ || index >= last_) return images_.read_image(split, index, image);
    for (std::int64_t pixel = 0; pixel < format().height * format().width; ++pixel)
      for (const std::uint8_t byte : {125, 123, 114}) *image++ = byte;
  }
  int label(Split split, std::int64_t index) const override { return images_.label(split, index); }
  nlohmann::json provenance() const override { return images_.provenance(); }

 private:
  const ImageDataset& images_;
  std::int64_t first_, last_;
};

// The largest power of two that the first minibatch takes, found by overflowing until it does.
float largest_scale(Trainer& trainer) {
  trainer.loss_scaler().resume_from({0x1p40f, 0});
  while (!trainer.train(kFirst, 0.05f).updated) {
  }
  return trainer.loss_scaler().scale();
}

class Overflow : public ::testing::TestWithParam<const char*> {};

TEST_P(Overflow, ChangesNothingButTheScale) {
  Session searching = small_session(spec_of(GetParam()), 100, 20);
  const float scale = largest_scale(*searching.trainer);
  ASSERT_GE(scale, 1);

  Session straight = small_session(spec_of(GetParam(), scale), 100, 20);
  EXPECT_TRUE(straight.trainer->train(kFirst, 0.05f).updated);
  EXPECT_TRUE(state_bytes(*searching.trainer) == state_bytes(*straight.trainer));

  Session session = small_session(spec_of(GetParam(), 2 * scale), 100, 20);
  Trainer& trainer = *session.trainer;
  const std::string before = state_bytes(trainer);
  EXPECT_FALSE(trainer.train(kFirst, 0.05f).updated);
  EXPECT_TRUE(state_bytes(trainer) == before);
  EXPECT_EQ(trainer.loss_scaler().scale(), scale);
  EXPECT_TRUE(trainer.train(kFirst, 0.05f).updated);
  EXPECT_TRUE(state_bytes(trainer) == state_bytes(*straight.trainer));
  EXPECT_EQ(trainer.loss_scaler().scale(), scale);
}

// Of three parts only the middle one overflows.
TEST_P(Overflow, InOnePartOfSeveral) {
  Session calm = small_session(spec_of(GetParam()), 100, 20);
  const float scale = largest_scale(*calm.trainer);

  Session session = small_session(spec_of(GetParam(), scale), 100, 20);
  const auto& task = dynamic_cast<const ImageTask&>(*session.task);
  const ImageTask grey(session.spec, task.data()->format(), task.size(),
                       std::make_shared<GreyPart>(*task.data(), 7, 14));
  Trainer trainer(session.spec, grey, *session.backend, arena_memory(session.prediction.layout));
  trainer.initialize();
  const std::string before = state_bytes(trainer);
  EXPECT_FALSE(trainer.train(kFirst, 0.05f).updated);
  EXPECT_TRUE(state_bytes(trainer) == before);
  EXPECT_EQ(trainer.loss_scaler().scale(), scale / 2);
  EXPECT_TRUE(trainer.train(kSecond, 0.05f).updated);
  EXPECT_FALSE(state_bytes(trainer) == before);
  EXPECT_EQ(trainer.loss_scaler().scale(), scale / 2);
}

// A minibatch after which the scale doubles is divided by the scale that it had.
TEST_P(Overflow, DoublingConcernsLaterMinibatches) {
  const auto after_one = [](std::int64_t window) {
    RunSpec spec = spec_of(GetParam());
    spec.loss_scale_window = window;
    Session session = small_session(spec, 100, 20);
    EXPECT_TRUE(session.trainer->train(kFirst, 0.05f).updated);
    EXPECT_EQ(session.trainer->loss_scaler().scale(), window == 1 ? 256 : 128);
    return state_bytes(*session.trainer);
  };
  EXPECT_TRUE(after_one(1) == after_one(1000));
}

// The run: minibatches count in epochs, updates in the schedule.
TEST_P(Overflow, MovesTheRunButNotTheSchedule) {
  const TemporaryFolder folder;
  RunSpec spec = spec_of(GetParam(), 0x1p40);
  spec.learning_rate = 0, spec.recipe = "short", spec.epochs = 15;
  const auto rates = [&](const RunSpec& given, TrainingOutcome& outcome) {
    Session session = small_session(given, 40, 20);
    TrainingOptions options;
    options.loss_log = folder / "losses";
    outcome = TrainingRun(session, options).run();
    std::vector<std::pair<std::int64_t, float>> result;
    std::istringstream lines(read_file(options.loss_log));
    for (std::string line; std::getline(lines, line);) {
      const auto json = nlohmann::json::parse(line);
      if (!json.contains("skipped")) result.emplace_back(json["update"], json["learning_rate"]);
    }
    return result;
  };
  TrainingOutcome disturbed, calm;
  const auto with_overflows = rates(spec, disturbed);
  spec.loss_scale = 128;
  auto without = rates(spec, calm);
  EXPECT_EQ(calm.state.skipped, 0);
  EXPECT_EQ(calm.state.updates, 30);
  EXPECT_GE(disturbed.state.skipped, 5);
  EXPECT_EQ(disturbed.state.minibatches(), 30);
  EXPECT_EQ(disturbed.state.curve.size(), calm.state.curve.size());
  without.resize(with_overflows.size());
  EXPECT_EQ(with_overflows, without);
}

INSTANTIATE_TEST_SUITE_P(, Overflow, ::testing::Values("fp16", "fp16_master", "fp16_mixed"),
                         [](const auto& p) { return std::string(p.param); });

}  // namespace
}  // namespace memfloor::testing

// The modes of low precision in training: what they store, and that they train.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "techniques/registry.h"
#include "tests/reference_net.h"

namespace memfloor::testing {
namespace {

constexpr int kSteps = 20;

// The mean loss of the last five of twenty steps.
double late_loss(Trainer& trainer) {
  Totals late;
  for (int step = 0; step < kSteps; ++step) {
    const Totals totals = trainer.train({step, 0, step * 20, 20}, 0.05f);
    EXPECT_TRUE(totals.updated) << "step " << step;
    if (step >= kSteps - 5) late.add(totals);
  }
  return late.mean_loss();
}

TEST(PrecisionTraining, StaysNearFp32) {
  const auto loss_of = [](const std::string& precision) {
    Session session = small_session(small_spec(precision, 2), 20 * kSteps, 20);
    return late_loss(*session.trainer);
  };
  const double fp32 = loss_of("fp32");
  for (const std::string& precision : precision_names()) {
    const double loss = loss_of(precision);
    std::printf("  %s: %.4f\n", precision.c_str(), loss);
    EXPECT_NEAR(loss, fp32, 0.1 * fp32) << precision;
  }
}

// ParameterStore::state() by name.
const StateTensor* find(const std::vector<StateTensor>& tensors, const std::string& name) {
  for (const StateTensor& tensor : tensors)
    if (tensor.name == name) return &tensor;
  return nullptr;
}

TEST(PrecisionTraining, StoresWhatTheModeSays) {
  for (const std::string& precision : precision_names()) {
    SCOPED_TRACE(precision);
    Session session = small_session(small_spec(precision, 2), 100, 20);
    for (int step = 0; step < 3; ++step) session.trainer->train({step, 0, step * 20, 20}, 0.05f);
    const PrecisionPolicy policy = make_precision(precision);
    const auto tensors = session.trainer->parameters().state();
    const StateTensor* weights = find(tensors, "weights");
    const StateTensor* momentum = find(tensors, "optimizer_state.0");
    const StateTensor* master = find(tensors, "master_weights");
    ASSERT_TRUE(weights && momentum);
    EXPECT_EQ(weights->type, stored_type_of(policy.weight));
    EXPECT_EQ(momentum->type, stored_type_of(policy.optimizer_state));
    EXPECT_EQ(find(tensors, "sensitive.weights")->type, StoredType::f32);
    EXPECT_EQ(find(tensors, "sensitive.optimizer_state.0")->type, StoredType::f32);
    EXPECT_EQ(find(tensors, "sensitive.master_weights"), nullptr);
    ASSERT_EQ(master != nullptr, policy.master);
    if (!master) continue;
    // The weights are their masters, rounded.
    const auto count = static_cast<std::size_t>(master->elements);
    std::vector<std::uint16_t> copy(count);
    from_f32(static_cast<const float*>(master->data), policy.weight, copy.data(), master->elements);
    EXPECT_EQ(std::memcmp(copy.data(), weights->data, 2 * count), 0);
  }
}

TEST(PrecisionTraining, ImportedWeightsReachTheMasters) {
  Session session = small_session(small_spec("fp16_master", 1), 100, 20);
  ParameterStore& store = session.trainer->parameters();
  const int handle = 0;  // the stem
  store.write_dense([&](ParameterStore::Handle h, float* to) {
    std::fill_n(to, store.specs()[static_cast<std::size_t>(h)].elements(), 0.1f);
  });
  const auto tensors = store.state();
  EXPECT_EQ(static_cast<const float*>(find(tensors, "master_weights")->data)[0], 0.1f);
  std::vector<float> read(static_cast<std::size_t>(store.specs()[handle].elements()));
  store.read_dense(handle, read.data());
  EXPECT_EQ(read[0], static_cast<float>(F16(0.1f)));
}

TEST(PrecisionTraining, RoundingIsAChoice) {
  const auto trained = [](const std::string& precision, const std::string& rounding) {
    RunSpec spec = small_spec(precision, 1);
    spec.rounding = rounding;
    Session session = small_session(spec, 100, 20);
    for (int step = 0; step < 2; ++step) session.trainer->train({step, 0, step * 20, 20}, 0.05f);
    return state_bytes(*session.trainer);
  };
  EXPECT_TRUE(trained("bf16", "") == trained("bf16", "stochastic"));
  EXPECT_FALSE(trained("bf16", "") == trained("bf16", "nearest"));
  EXPECT_TRUE(trained("bf16_master", "") == trained("bf16_master", "nearest"));
  EXPECT_FALSE(trained("bf16_master", "") == trained("bf16_master", "stochastic"));
}

}  // namespace
}  // namespace memfloor::testing

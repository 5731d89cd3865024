// DynamicConv against PyTorch, which computes it on padded sentences with masks: ours have no
// padding that could matter. tests/data/README.md says what the answers are.
#include <gtest/gtest.h>

#include <cmath>

#include "core/memory_source.h"
#include "engine/dense_store.h"
#include "tests/reference_net.h"
#include "tests/small_translator.h"

namespace memfloor::testing {
namespace {

DynamicConvConfig config_of_dump(const std::string& method) {
  DynamicConvConfig config;
  config.source_vocabulary = 29, config.target_vocabulary = 523;
  config.channels = 16, config.feed_forward = 24, config.heads = 2;
  config.encoder_kernels = {3, 7}, config.decoder_kernels = {3, 4};
  config.dropout = config.attention_dropout = config.kernel_dropout = 0;
  if (method == "direct, logits in chunks")
    config.method = DynamicConvolutionMethod::direct, config.loss.chunk = 7;
  return config;
}

// Step 0 is that of the gradients, the others are those of training.
SentencePairs pairs_of_dump(const Dump& dump, std::int64_t step) {
  SentencePairs pairs;
  pairs.source = sequences_of(dump.integers("source.lengths"));
  pairs.target = sequences_of(dump.integers("target.lengths"));
  const auto row = [&](const char* name, std::int64_t rows) {
    const std::vector<std::int32_t> all = dump.labels(name);
    return std::vector<std::int32_t>(all.begin() + step * rows, all.begin() + (step + 1) * rows);
  };
  pairs.source_tokens = row("source", pairs.source->rows());
  pairs.target_tokens = row("target", pairs.target->rows());
  pairs.labels = row("labels", pairs.target->rows());
  return pairs;
}

class DynamicConvReference : public ::testing::TestWithParam<const char*> {
 protected:
  DynamicConvReference() { load_start(dump, net.parameters(), none); }

  const Dump dump{"dynamic_conv"};
  RunningStatistics none;
  SmallTranslator net{{.config = config_of_dump(GetParam())}};
};

TEST_P(DynamicConvReference, OutputsLossAndEveryGradient) {
  const SentencePairs pairs = pairs_of_dump(dump, 0);
  EXPECT_LE(dump.answer("output").distance_of(
                net.evaluated([&](Context& context) { return net.run(context, pairs); })),
            1e-6);
  const double plain = dump.doubles("plain_loss")[0], smoothed = dump.doubles("loss")[0];
  EXPECT_NEAR(net.evaluate(pairs).loss, plain, 1e-6 * plain);
  EXPECT_NEAR(net.gradients(pairs).loss, smoothed, 1e-6 * smoothed);

  const std::vector<ParameterSpec>& specs = net.parameters().specs();
  ASSERT_EQ(specs.size(), 75u);
  double worst = 0;
  for (std::size_t h = 0; h < specs.size(); ++h) {
    const std::vector<float> ours = net.gradient(static_cast<int>(h));
    // Softmax is blind to what is added to every score: the keys' biases have no gradient.
    if (specs[h].name.ends_with(".kk.bias")) {
      for (const float g : ours) EXPECT_NEAR(g, 0, 1e-8) << specs[h].name;
      continue;
    }
    const double distance =
        dump.answer(specs[h].name + ".grad", specs[h].elements()).distance_of(ours);
    EXPECT_LE(distance, 1e-5) << specs[h].name;
    worst = std::max(worst, distance);
  }
  std::printf("  gradients: at worst %.3g from PyTorch's\n", worst);
}

TEST_P(DynamicConvReference, TenTrainingLosses) {
  const std::vector<double> losses = dump.doubles("losses");
  ASSERT_EQ(losses.size(), 10u);
  for (std::size_t step = 0; step < losses.size(); ++step) {
    const SentencePairs pairs = pairs_of_dump(dump, static_cast<std::int64_t>(step) + 1);
    const double loss = net.gradients(pairs).loss / static_cast<double>(pairs.target->rows());
    EXPECT_NEAR(loss, losses[step], 1e-4 * losses[step]) << "step " << step;
    net.update(0.01f);
  }
}

INSTANTIATE_TEST_SUITE_P(, DynamicConvReference,
                         ::testing::Values("band, whole logits", "direct, logits in chunks"));

// ---- at full size

TEST(DynamicConv, HasThePublishedNumberOfParameters) {
  DenseStore store;
  const DynamicConv model({}, store);
  EXPECT_EQ(store.parameters(), 38685184);
  EXPECT_EQ(store.parameters(), Dump("dynamic_conv").integers("parameters")[0]);
  std::int64_t sensitive = 0;
  for (const ParameterSpec& spec : store.specs()) sensitive += spec.sensitive ? spec.elements() : 0;
  EXPECT_EQ(sensitive, 78336);
}

// One pass of a part of `sentences` pairs with 25 entries each, without arithmetic.
MemoryRecord predicted(const DynamicConvConfig& config, std::int64_t sentences) {
  const std::unique_ptr<Backend> backend = make_null_backend(make_cpu_backend(1));
  Ledger ledger(no_memory());
  DenseStore store;
  const DynamicConv model(config, store);
  const PrecisionPolicy precision;
  RunningStatistics running;
  store.allocate(ledger, backend->tensor_ops(), precision, 2);
  const auto rows = sequences_of(std::vector<std::int64_t>(sentences, 25));
  MemoryRecord record;
  const Ledger::Phase phase(ledger, "part", record);
  store.begin_minibatch();
  const KeepAll plan;
  Tape tape;
  Context context{*backend, ledger, store, running, precision, plan, &tape, Pass::first};
  Value x = model.forward(context, make_text(rows, nullptr), make_text(rows, nullptr));
  model.loss(context, std::move(x), nullptr, nullptr, 1);
  tape.backward(context);
  return record;
}

// The floats that are kept for a pair of a source and a target position in sentences of 25.
constexpr std::int64_t kKept = [] {
  constexpr int kEncoder[] = {3, 7, 15, 31, 31, 31, 31}, kDecoder[] = {3, 7, 15, 31, 31, 31};
  constexpr std::int64_t kChannels = 512, kFeedForward = 1024, kHeads = 4, kLength = 25;
  std::int64_t floats = kChannels + 6632;  // the last product's input, the log-probabilities
  const auto layer = [&](int kernel) {
    // The inputs of lin1, lin2, fc1 and the convolution, of that also a copy in head-major order;
    // the kernels and their band; the ReLU's output; two normalisations' inputs and statistics.
    floats += 5 * kChannels + kHeads * (kernel + kLength + kernel - 1);
    floats += kFeedForward + 2 * (kChannels + 2);
  };
  for (const int kernel : kEncoder) layer(kernel);
  floats += kChannels;  // the encoder's output
  for (const int kernel : kDecoder) {
    layer(kernel);
    floats += 5 * kChannels + kHeads * kLength;  // q's input, q, k, v, o's input; probabilities
    floats += kChannels + 2;
  }
  return floats;
}();

TEST(DynamicConv, KeepsWhatPyTorchKeeps) {
  const std::int64_t sentences = 160, pairs = sentences * 25;
  EXPECT_EQ(at(predicted({}, sentences).category_peak, Category::activation), 4 * pairs * kKept);
  // PyTorch's bands are a column wider (13 convolutions, 4 heads); and one number a position.
  EXPECT_EQ(Dump("dynamic_conv").integers("saved_elements")[0], 50 * (kKept + 53));
}

TEST(DynamicConv, UnitsStateWhatTheySave) {
  DenseStore store;
  const DynamicConv model({}, store);
  std::int64_t elements = 512 + 6632;  // what the loss saves
  for (const Unit& unit : model.chain()) elements += unit.saved_elements;
  EXPECT_EQ(elements, kKept);
}

// ---- sizes that make no model

TEST(DynamicConv, RefusesOtherSizes) {
  const auto why = [](auto change) -> std::string {
    DynamicConvConfig config;
    change(config);
    DenseStore store;
    try {
      const DynamicConv model(config, store);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  using Config = DynamicConvConfig;
  EXPECT_NE(why([](Config& c) { c.heads = 5; }).find("heads"), std::string::npos);
  EXPECT_NE(why([](Config& c) { c.channels = 7; }).find("even"), std::string::npos);
  EXPECT_NE(why([](Config& c) { c.encoder_kernels = {3, 4}; }).find("odd"), std::string::npos);
  EXPECT_NE(why([](Config& c) { c.decoder_kernels = {0}; }).find("width"), std::string::npos);
  EXPECT_NE(why([](Config& c) { c.decoder_kernels = {}; }).find("layer"), std::string::npos);
  EXPECT_NE(why([](Config& c) { c.target_vocabulary = 3; }).find("vocabulary"), std::string::npos);
  EXPECT_NE(why([](Config& c) { c.loss.chunk = -1; }).find("row"), std::string::npos);
  EXPECT_EQ(why([](Config&) {}), "");
}

}  // namespace
}  // namespace memfloor::testing

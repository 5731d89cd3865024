// DynamicConv under the techniques: equal bytes however it is checkpointed, equal gradients however
// the minibatch is cut, compressed stores.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/random_tree.h"
#include "tests/small_translator.h"

namespace memfloor::testing {
namespace {

using Options = SmallTranslator::Options;
constexpr auto kMethods = {DynamicConvolutionMethod::band, DynamicConvolutionMethod::direct};

Options with_method(DynamicConvolutionMethod method) {
  Options options;
  options.config.method = method;
  return options;
}

std::string bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// An update, then the gradients and loss of a second minibatch, each in two parts.
std::string trained(const Options& options, const std::string& plan) {
  SmallTranslator net(options);
  const SentencePairs pairs = random_pairs(6, options.config, 3);
  LossSums sums;
  for (int update = 0; update < 2; ++update) {
    if (update > 0) net.update(0.01f);
    sums = net.gradients(pairs, 2, plan);
  }
  std::string bytes = bytes_of(net.all_gradients());
  bytes.append(reinterpret_cast<const char*>(&sums.loss), sizeof sums.loss);
  return bytes;
}

// |a - b| / |b|
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    error += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    size += static_cast<double>(b[i]) * b[i];
  }
  return std::sqrt(error / size);
}

void expect_equal_gradients(const SmallTranslator& ours, const SmallTranslator& theirs,
                            const std::vector<ParameterSpec>& specs, double bound) {
  for (std::size_t h = 0; h < specs.size(); ++h) {
    // Softmax is blind to what is added to every score: the keys' biases have rounding errors only.
    if (specs[h].name.ends_with(".kk.bias")) continue;
    const auto handle = static_cast<ParameterStore::Handle>(h);
    EXPECT_LE(distance(ours.gradient(handle), theirs.gradient(handle)), bound) << specs[h].name;
  }
}

// ---- checkpointing

TEST(DynamicConvTraining, PlansGiveTheBytesOfKeepAll) {
  for (const DynamicConvolutionMethod method : kMethods)
    for (const char* precision : {"fp32", "bf16"})
      for (const std::int64_t chunk : {0, 5}) {
        Options options = with_method(method);
        options.precision = precision, options.config.loss.chunk = chunk;
        const std::string kept = trained(options, "none");
        for (const char* plan : {"blocks", "normalization", "recursive/normalization"})
          EXPECT_TRUE(trained(options, plan) == kept)
              << plan << ", " << precision << ", chunk " << chunk;
      }
}

TEST(DynamicConvTraining, AnyTreeGivesTheBytesOfKeepAll) {
  const Options direct = with_method(DynamicConvolutionMethod::direct);
  const Options band = with_method(DynamicConvolutionMethod::band);
  const std::string kept[] = {trained(band, "none"), trained(direct, "none")};
  const std::size_t units = SmallTranslator(direct).model().chain().size();
  ASSERT_EQ(units, 21u);
  std::uint32_t draws = 0;
  for (std::uint32_t seed = 0; seed < 24; ++seed) {
    const std::string plan = to_text(random_tree(0, units, seed, draws));
    EXPECT_TRUE(trained(seed % 2 ? direct : band, plan) == kept[seed % 2]) << plan;
  }
}

TEST(DynamicConvTraining, ThreadsChangeNothing) {
  for (const char* precision : {"fp32", "bf16"}) {
    Options options;
    options.precision = precision;
    const auto bytes = [&](int threads) {
      options.threads = threads;
      return trained(options, "blocks");
    };
    const std::string one = bytes(1);
    for (const int threads : {2, 5}) EXPECT_TRUE(bytes(threads) == one) << threads;
  }
}

// What is cheap to make again costs no matrix product but the small one that predicts kernels.
TEST(DynamicConvTraining, UnitsReplayNoLargeProduct) {
  Options options;
  SmallTranslator net(options);
  const SentencePairs pairs = random_pairs(4, options.config, 3);
  net.gradients(pairs, 1, "normalization");
  const std::int64_t source = pairs.source->rows(), target = pairs.target->rows();
  const std::int64_t channels = options.config.channels, heads = options.config.heads;
  std::int64_t again = 0;
  const auto convolution = [&](int kernel, std::int64_t rows) {
    again += rows * channels * kernel * (1 + heads);
  };
  for (const int kernel : options.config.encoder_kernels) convolution(kernel, source);
  for (const int kernel : options.config.decoder_kernels) convolution(kernel, target);
  for (std::int64_t i = 0; i < pairs.count(); ++i)
    again += 2 * 2 * channels * pairs.source->length(i) * pairs.target->length(i);
  EXPECT_EQ(net.work().recompute, again);
  net.gradients(pairs, 1, "none");
  EXPECT_EQ(net.work().recompute, 0);
}

// ---- parts

// Masks depend on a sentence's number in the minibatch, not on the part it is in.
TEST(DynamicConvTraining, PartsGiveTheGradientsOfTheWhole) {
  for (const DynamicConvolutionMethod method : kMethods) {
    const Options options = with_method(method);
    SmallTranslator whole(options), cut(options);
    const SentencePairs pairs = random_pairs(16, options.config, 5);
    const LossSums all = whole.gradients(pairs);
    for (const std::int64_t parts : {4, 16}) {
      const LossSums sums = cut.gradients(pairs, parts);
      EXPECT_NEAR(sums.loss, all.loss, 1e-6 * all.loss);
      expect_equal_gradients(cut, whole, whole.parameters().specs(), 1e-5);
    }
  }
}

TEST(DynamicConvTraining, TheOrderOfSentencesDoesNotMatter) {
  Options options;
  DynamicConvConfig& config = options.config;
  config.dropout = config.attention_dropout = config.kernel_dropout = 0;
  SmallTranslator straight(options), shuffled(options);
  const SentencePairs pairs = random_pairs(8, config, 6);
  const LossSums a = straight.gradients(pairs);
  const LossSums b = shuffled.gradients(pairs.chosen({5, 2, 7, 0, 3, 6, 1, 4}));
  EXPECT_NEAR(a.loss, b.loss, 1e-6 * a.loss);
  expect_equal_gradients(shuffled, straight, straight.parameters().specs(), 1e-5);
}

TEST(DynamicConvTraining, DropoutIsDrawnAnewForEveryMinibatch) {
  Options options;
  SmallTranslator net(options);
  const SentencePairs pairs = random_pairs(4, options.config, 6);
  const double first = net.gradients(pairs).loss;
  EXPECT_EQ(net.gradients(pairs).loss, first);
  net.update(0);
  EXPECT_NE(net.gradients(pairs).loss, first);
}

// ---- the loss

TEST(DynamicConvTraining, ChunksOfTheLossAgree) {
  for (const char* precision : {"fp32", "bf16_mixed"}) {
    Options options;
    options.precision = precision;
    SmallTranslator whole(options);
    const SentencePairs pairs = random_pairs(6, options.config, 8);
    const LossSums all = whole.gradients(pairs), evaluated = whole.evaluate(pairs);
    for (const std::int64_t chunk : {1, 7, 1000}) {
      options.config.loss.chunk = chunk;
      SmallTranslator chunked(options);
      const LossSums sums = chunked.gradients(pairs);
      EXPECT_NEAR(sums.loss, all.loss, 1e-9 * all.loss) << chunk;
      EXPECT_EQ(sums.correct, all.correct);
      EXPECT_NEAR(chunked.evaluate(pairs).loss, evaluated.loss, 1e-9 * evaluated.loss);
      expect_equal_gradients(chunked, whole, whole.parameters().specs(), 1e-5);
    }
  }
}

TEST(DynamicConvTraining, EvaluationHasNoSmoothingAndNoDropout) {
  Options options;
  SmallTranslator net(options);
  const SentencePairs pairs = random_pairs(3, options.config, 9);
  DynamicConvConfig& config = options.config;
  config.dropout = config.attention_dropout = config.kernel_dropout = config.loss.smoothing = 0;
  SmallTranslator plain(options);
  EXPECT_EQ(net.evaluate(pairs).loss, plain.gradients(pairs).loss);
}

// ---- sparse

TEST(DynamicConvTraining, LearnsWithCompressedWeights) {
  for (const char* scope : {"layers", "all"}) {
    Options options;
    options.sparsity = {.sparsity = 0.5, .scope = scope}, options.precision = "bf16";
    DynamicConvConfig& config = options.config;
    config.dropout = config.attention_dropout = config.kernel_dropout = 0;
    SmallTranslator net(options);
    const ParameterStore& parameters = net.parameters();
    for (std::size_t h = 0; h < parameters.specs().size(); ++h) {
      const ParameterSpec& spec = parameters.specs()[h];
      const bool compressed = !spec.sensitive && (!spec.vocabulary || scope == std::string("all"));
      EXPECT_EQ(parameters.compressed(static_cast<int>(h)), compressed) << spec.name;
    }
    const SentencePairs pairs = random_pairs(3, config, 10);
    const double before = net.gradients(pairs, 1, "blocks").loss;
    for (int update = 0; update < 30; ++update) {
      net.update(0.01f);
      net.gradients(pairs, 1, "blocks");
    }
    EXPECT_LT(net.gradients(pairs).loss, before / 2) << scope;
  }
}

// A compressed matrix is used in tiles too: each is what the dense one has there.
TEST(DynamicConvTraining, CompressedWeightsGiveTheLossOfTheSameDenseOnes) {
  Options options;
  SmallTranslator dense(options);
  options.sparsity = {.sparsity = 0.5, .scope = "all"};
  SmallTranslator sparse(options);
  dense.parameters().write_dense(
      [&](ParameterStore::Handle h, float* to) { sparse.parameters().read_dense(h, to); });
  const SentencePairs pairs = random_pairs(4, options.config, 14);
  EXPECT_EQ(sparse.gradients(pairs).loss, dense.gradients(pairs).loss);
  for (std::size_t h = 0; h < dense.parameters().specs().size(); ++h) {
    const auto handle = static_cast<ParameterStore::Handle>(h);
    std::vector<float> expected = dense.gradient(handle);
    std::vector<std::uint8_t> stored(expected.size());
    sparse.parameters().read_pattern(handle, stored.data());
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] *= stored[i];
    EXPECT_EQ(sparse.gradient(handle), expected) << dense.parameters().specs()[h].name;
  }
}

}  // namespace
}  // namespace memfloor::testing

// What a spec may say of images and what of translation; a refusal names the flag.
#include "suite/run_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "suite/models.h"
#include "suite/recipe.h"
#include "tests/temporary_folder.h"

namespace memfloor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

RunSpec of_model(const std::string& model) {
  RunSpec spec;
  spec.model = model;
  return spec;
}

// What validated() says of the spec with keys set as on the command line.
std::string refusal(const std::string& model,
                    const std::vector<std::pair<std::string, std::string>>& settings) {
  RunSpec spec = of_model(model);
  for (const auto& [name, text] : settings)
    for (const SpecKey& key : spec_keys())
      if (key.name == name) set_from_text(spec, key, text);
  return error_of<InputError>([&] { validated(spec); });
}

TEST(RunSpec, RefusesTheOtherFamilysKeys) {
  for (const auto& [key, value] : {std::pair{"max_tokens", "100"},
                                   {"microbatch_tokens", "100"},
                                   {"conv_impl", "band"},
                                   {"loss_chunk", "100"},
                                   {"sentence_length", "25"},
                                   {"test_sentences", "5"}})
    EXPECT_THAT(refusal("wrn10_1", {{key, value}}),
                HasSubstr("does not go with --model wrn10_1; leave it out"))
        << key;
  for (const auto& [key, value] : {std::pair{"norm", "batch"},
                                   {"batch_size", "10"},
                                   {"microbatch", "5"},
                                   {"test_images", "5"},
                                   {"bn_recalibrate", "5"}})
    EXPECT_THAT(refusal("dynamic_conv", {{key, value}}),
                HasSubstr("does not go with --model dynamic_conv; leave it out"))
        << key;
  EXPECT_THAT(refusal("wrn10_1", {{"max_tokens", "100"}}), HasSubstr("--max-tokens"));
  EXPECT_THAT(refusal("dynamic_conv", {{"batch_size", "10"}}), HasSubstr("--batch-size"));
}

TEST(RunSpec, KnowsTheNamesOfModels) {
  for (const char* name :
       {"dynamic_conv0_1_16", "dynamic_conv1_0_16", "dynamic_conv1_1_15", "dynamic_conv1_1_0",
        "dynamic_conv1_1", "dynamic_conv1_1_16_", "dynamic_conv1_1_16x", "dynamic_conv-1_1_16",
        "dynamic_conv101_1_16", "dynamic_conv1_1_200000", "dynamic_convx", "dynamic_conv_1_1_16",
        "dynamic_conv99999999999999999999_1_16", "wrn", "wrn28", "wrn27_2", "transformer", ""})
    EXPECT_THAT(refusal(name, {}), AllOf(HasSubstr("--model"), HasSubstr(name))) << name;
  for (const char* name : {"dynamic_conv", "dynamic_conv1_1_16", "dynamic_conv12_3_64", "wrn10_1"})
    EXPECT_EQ(refusal(name, {}), "");

  const DynamicConvConfig published = make_dynamic_conv_config(of_model("dynamic_conv"));
  EXPECT_EQ(published.encoder_kernels, (std::vector<int>{3, 7, 15, 31, 31, 31, 31}));
  EXPECT_EQ(published.channels, 512);
  const DynamicConvConfig small = make_dynamic_conv_config(of_model("dynamic_conv5_2_16"));
  EXPECT_EQ(small.encoder_kernels, (std::vector<int>{3, 7, 15, 31, 31}));
  EXPECT_EQ(small.decoder_kernels, (std::vector<int>{3, 7}));
  EXPECT_EQ(small.channels, 16);
  EXPECT_EQ(small.feed_forward, 32);
}

TEST(RunSpec, RefusesWhatTranslationCannotDo) {
  using Settings = std::vector<std::pair<std::string, std::string>>;
  for (const auto& [settings, flag] :
       {std::pair{Settings{{"data", "cifar10"}}, "--data 'cifar10'"},
        {{{"max_tokens", "-1"}}, "--max-tokens"},
        {{{"max_tokens", "100000001"}}, "--max-tokens"},
        {{{"microbatch_tokens", "-5"}}, "--microbatch-tokens"},
        {{{"microbatch_tokens", "4001"}}, "--microbatch-tokens"},
        {{{"conv_impl", "fft"}}, "--conv-impl 'fft'"},
        {{{"loss_chunk", "-1"}}, "--loss-chunk"},
        {{{"test_sentences", "-1"}}, "--test-sentences"},
        {{{"sentence_length", "1"}}, "--sentence-length"},
        {{{"sentence_length", "-25"}}, "--sentence-length"},
        {{{"sentence_length", "4001"}}, "--sentence-length"},
        {{{"sentence_length", "25"}, {"data", "translation"}}, "--sentence-length"},
        {{{"checkpoint", "plan:0-999"}}, "--checkpoint"},
        {{{"checkpoint", "budget:1GB"}}, "--checkpoint budget"},
        {{{"recipe", "long"}}, "--recipe 'long'"},
        {{{"preset", "fattest"}}, "--preset 'fattest'"},
        {{{"sparsity", "0.5"}, {"sparse_scope", "some"}}, "--sparse-scope"}}) {
    const std::string sentence = refusal("dynamic_conv", settings);
    EXPECT_THAT(sentence, AllOf(HasSubstr(flag), Not(HasSubstr("\n")))) << settings[0].first;
  }
  EXPECT_THAT(refusal("wrn10_1", {{"data", "translation"}}), HasSubstr("--data 'translation'"));
}

TEST(RunSpec, FillsDefaultsByFamily) {
  const RunSpec images = validated(of_model("wrn28_2"));
  EXPECT_EQ(images.batch_size, 100);
  EXPECT_EQ(images.microbatch, 100);
  EXPECT_EQ(images.max_tokens, 0);
  EXPECT_EQ(images.norm, "batch");
  EXPECT_EQ(images.epochs, 200);
  EXPECT_EQ(images.max_steps, 0);
  const RunSpec text = validated(of_model("dynamic_conv"));
  EXPECT_EQ(text.max_tokens, 4000);
  EXPECT_EQ(text.microbatch_tokens, 4000);
  EXPECT_EQ(text.conv_impl, "band");
  EXPECT_EQ(text.batch_size, 0);
  EXPECT_EQ(text.norm, "");
  EXPECT_EQ(text.epochs, 0);
  EXPECT_EQ(text.max_steps, 50000);
  for (const RunSpec& spec : {images, text}) EXPECT_EQ(validated(spec), spec);  // again
  EXPECT_EQ(case_name(text), "model=dynamic_conv/data=synthetic");
}

// ---- fairseq's schedule

TEST(Recipe, WarmsUpLinearlyThenFallsWithTheInverseRoot) {
  const Recipe& paper = find_recipe(of_model("dynamic_conv"));
  const auto rate = [](const Recipe& recipe, std::int64_t update) {  // of update 1, 2, ...
    return recipe.learning_rate({update - 1, 50000, 777});
  };
  EXPECT_FLOAT_EQ(rate(paper, 1), 1e-7f + (5e-4f - 1e-7f) / 4000);
  EXPECT_FLOAT_EQ(rate(paper, 2000), 1e-7f + (5e-4f - 1e-7f) / 2);
  EXPECT_FLOAT_EQ(rate(paper, 4000), 5e-4f);
  EXPECT_FLOAT_EQ(rate(paper, 16000), 2.5e-4f);
  EXPECT_FLOAT_EQ(rate(paper, 40000), 5e-4f * std::sqrt(0.1f));
  RunSpec spec = of_model("dynamic_conv");
  spec.recipe = "short";
  EXPECT_FLOAT_EQ(rate(find_recipe(spec), 400), 1e-3f);
  EXPECT_FLOAT_EQ(rate(find_recipe(spec), 1600), 5e-4f);
}

TEST(Recipe, AveragesTheLastEpochs) {
  const auto averaged = [](const char* recipe, std::int64_t epochs, std::int64_t max_steps) {
    RunSpec spec = of_model("dynamic_conv");
    spec.recipe = recipe, spec.epochs = epochs, spec.max_steps = max_steps;
    const AveragedEpochs range = averaged_epochs(validated(spec), 100);
    return std::pair{range.first, range.last};
  };
  EXPECT_EQ(averaged("short", 0, 0), std::pair(std::int64_t{13}, std::int64_t{15}));
  EXPECT_EQ(averaged("paper", 0, 0), std::pair(std::int64_t{491}, std::int64_t{500}));
  EXPECT_EQ(averaged("paper", 3, 0), std::pair(std::int64_t{1}, std::int64_t{3}));
  EXPECT_EQ(averaged("short", 0, 450), std::pair(std::int64_t{3}, std::int64_t{5}));
  EXPECT_EQ(averaged("short", 0, 90), std::pair(std::int64_t{1}, std::int64_t{0}));  // one epoch
  EXPECT_EQ(averaged_epochs(validated(of_model("wrn10_1")), 100).last, 0);
  RunSpec spec = of_model("dynamic_conv");
  spec.recipe = "short", spec.average_epochs = 5;
  EXPECT_EQ(averaged_epochs(validated(spec), 100).first, 11);
  spec.average_epochs = 1;
  EXPECT_EQ(averaged_epochs(validated(spec), 100).last, 0);
}

// Weights that are averaged have one pattern of non-zeros.
TEST(Recipe, PatternsStayWhileWeightsAreKept) {
  RunSpec spec = of_model("dynamic_conv");
  spec.recipe = "short";
  EXPECT_DOUBLE_EQ(rewire_stop_of(validated(spec), 100), 12.0 / 15);
  spec.rewire_stop = 0.5;
  EXPECT_EQ(rewire_stop_of(validated(spec), 100), 0.5);
  spec.epochs = 2;  // both are averaged
  EXPECT_DOUBLE_EQ(rewire_stop_of(validated(spec), 100), 1.0 / 200);
  EXPECT_EQ(rewire_stop_of(validated(of_model("wrn10_1")), 100), 0.95);
}

}  // namespace
}  // namespace memfloor

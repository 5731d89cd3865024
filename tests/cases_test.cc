#include "suite/cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "suite/presets.h"
#include "techniques/registry.h"

namespace memfloor {
namespace {

// The case of that name; fails the test where there is none.
Case find(const std::vector<Case>& cases, const std::string& name) {
  const auto found = std::ranges::find(cases, name, &Case::name);
  EXPECT_NE(found, cases.end()) << name;
  return found == cases.end() ? Case{} : *found;
}

// The keys and values of a name, without the kind: a value may have slashes of its own.
std::vector<std::pair<std::string, std::string>> keys_of(const std::string& name) {
  std::vector<std::pair<std::string, std::string>> keys;
  std::istringstream text(name.substr(name.find('/') + 1));
  for (std::string word; std::getline(text, word, '/');)
    if (const std::size_t equals = word.find('='); equals != word.npos)
      keys.emplace_back(word.substr(0, equals), word.substr(equals + 1));
    else
      keys.back().second += "/" + word;
  return keys;
}

std::string as_text(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

TEST(Cases, NamesAndFilesAreUnique) {
  std::set<std::string> names, files;
  for (const Case& c : suite_cases(RunSpec{})) {
    EXPECT_TRUE(names.insert(c.name).second) << c.name;
    EXPECT_TRUE(files.insert(concat(name_of(c.kind), "/", file_name(c))).second) << file_name(c);
    EXPECT_LT(file_name(c).size(), 240u) << file_name(c);  // with a suffix still a file's name
    EXPECT_EQ(c.impossible, "") << c.name;
    EXPECT_TRUE(c.name.starts_with(concat(name_of(c.kind), "/model="))) << c.name;
  }
}

// Scripts and result files rely on them: a changed name is another result.
TEST(Cases, KnownNamesStay) {
  const std::vector<Case> cases = suite_cases(RunSpec{});
  for (const char* name :
       {"memory/model=wrn28_2/data=synthetic",
        "step/model=wrn28_2/data=synthetic/precision=bf16/sparsity=0.8/microbatch=5/"
        "checkpoint=blocks",
        "train/model=wrn28_2/data=synthetic/sparsity=0.5/recipe=paper/seed=1",
        "memory/model=wrn28_2/data=synthetic/norm=group/microbatch=1",
        "step/model=dynamic_conv/data=synthetic/sentence_length=25",
        "memory/model=dynamic_conv/data=synthetic/precision=bf16/sparsity=0.9/sparse_scope=all/"
        "microbatch_tokens=250/sentence_length=25/conv_impl=direct/loss_chunk=125/"
        "checkpoint=recursive/normalization",
        "train/model=dynamic_conv/data=synthetic/precision=fp16_mixed/recipe=paper/seed=1"})
    find(cases, name);
  EXPECT_EQ(file_name(find(cases,
                           "memory/model=wrn28_2/data=synthetic/checkpoint=recursive/"
                           "normalization")),
            "model=wrn28_2,data=synthetic,checkpoint=recursive+normalization.json");
  EXPECT_EQ(file_name(find(cases, "step/model=wrn28_2/data=synthetic/checkpoint=segments:4")),
            "model=wrn28_2,data=synthetic,checkpoint=segments+4.json");
}

TEST(Cases, ANameHasTheKeysThatDifferFromTheDefaults) {
  RunSpec base;
  base.max_steps = 7, base.order = "sequential";
  for (const Case& c : suite_cases(base)) {
    RunSpec plain;
    plain.model = c.spec.model;
    const nlohmann::json mine = to_json(c.spec), defaults = to_json(validated(plain));
    std::set<std::string> named;
    for (const auto& [key, value] : keys_of(c.name)) {
      EXPECT_TRUE(named.insert(key).second) << c.name;
      EXPECT_EQ(value, as_text(mine.at(key))) << c.name;
      if (std::set<std::string>{"model", "data", "recipe", "seed"}.contains(key)) continue;
      EXPECT_NE(mine.at(key), defaults.at(key)) << c.name;
    }
    for (const char* key : {"max_steps", "order", "recipe", "seed"})
      EXPECT_EQ(named.contains(key), c.kind == CaseKind::train) << c.name;
  }
}

TEST(Cases, EveryCombinationIsThere) {
  const std::vector<Case> cases = suite_cases(RunSpec{});
  for (const std::string& model : suite_models())
    for (const CaseKind kind : {CaseKind::memory, CaseKind::step, CaseKind::train}) {
      RunSpec base;
      base.model = model;
      if (model == "dynamic_conv" && kind != CaseKind::train) base.sentence_length = 25;
      for (const std::string& precision : precision_names())
        for (RunSpec spec : technique_combinations(base)) {
          spec.precision = precision;
          find(cases, name_of_case(kind, validated(spec)));
        }
      for (const Preset& preset : presets()) {
        if (preset.family != family_of(model)) continue;
        RunSpec spec = base;
        set_from_preset(spec, preset.name);
        const Case c = find(cases, name_of_case(kind, validated(spec)));
        EXPECT_EQ(c.spec, validated(spec)) << "carries the preset's name " << preset.name;
      }
    }
}

TEST(Cases, WhatTheCommandLineSaysGoesIntoAll) {
  RunSpec base;
  base.threads = 1, base.seed = 3, base.sentence_length = 12;
  for (const Case& c : suite_cases(base, {"dynamic_conv3_3_16"})) {
    EXPECT_EQ(c.impossible, "");
    EXPECT_EQ(c.spec.model, "dynamic_conv3_3_16");
    EXPECT_EQ(c.spec.threads, 1);
    EXPECT_EQ(c.spec.seed, 3);
    EXPECT_EQ(c.spec.sentence_length, 12);
  }
  EXPECT_THROW(suite_cases(base, {"resnet"}), InputError);
}

TEST(Cases, ImpossibleOnesSayWhy) {
  RunSpec base;
  base.device = "cuda";
  for (const Case& c : suite_cases(base)) {
    EXPECT_NE(c.impossible.find("--device 'cuda'"), std::string::npos) << c.name;
    EXPECT_NE(c.name.find("/device=cuda"), std::string::npos) << c.name;
  }
  // A flag of images.
  base = RunSpec{};
  base.microbatch = 10;
  for (const Case& c : suite_cases(base))
    EXPECT_EQ(c.impossible,
              c.spec.model == "wrn28_2"
                  ? ""
                  : "--microbatch does not go with --model dynamic_conv; leave it out")
        << c.name;
  // Data that is not there; of images the bytes are known without.
  base = RunSpec{};
  base.data = "cifar10";
  for (const Case& c : suite_cases(base, {"wrn28_2"}))
    EXPECT_EQ(c.impossible.find("needs --data-dir") != std::string::npos,
              c.kind != CaseKind::memory)
        << c.name;
  // A plan that a small model has no room for.
  const std::vector<Case> small = suite_cases(RunSpec{}, {"wrn10_1"});
  EXPECT_NE(find(small, "step/model=wrn10_1/data=synthetic/checkpoint=segments:6")
                .impossible.find("is no number of segments"),
            std::string::npos);
  EXPECT_EQ(find(small, "step/model=wrn10_1/data=synthetic/checkpoint=segments:2").impossible, "");
}

}  // namespace
}  // namespace memfloor

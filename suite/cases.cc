#include "suite/cases.h"

#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "suite/models.h"
#include "suite/presets.h"
#include "techniques/registry.h"

namespace memfloor {
namespace {

using nlohmann::json;

// Of synthetic translation: those of the corpus are about as long on average.
constexpr std::int64_t kSentenceLength = 25;

// Mostly one technique at a time, beside the settings that the combinations have and what the
// registries of techniques know by name. Of any model...
const std::vector<json>& variants() {
  static const std::vector<json> all{
      {{"sparsity", 0.5}},
      {{"sparsity", 0.6}},
      {{"sparsity", 0.7}},
      {{"sparsity", 0.9}},
      {{"precision", "fp16"}, {"rounding", "nearest"}},
      {{"precision", "bf16"}, {"rounding", "nearest"}},
      {{"checkpoint", "normalization"}},
      {{"checkpoint", "blocks"}},
      {{"checkpoint", "sqrt"}},
      {{"checkpoint", "sqrt/blocks"}},
      {{"checkpoint", "segments:2"}},
      {{"checkpoint", "segments:3"}},
      {{"checkpoint", "segments:4"}},
      {{"checkpoint", "segments:6"}},
      {{"checkpoint", "tapered:2"}},
      {{"checkpoint", "tapered:3"}},
      {{"checkpoint", "recursive"}},
      {{"checkpoint", "recursive/normalization"}},
  };
  return all;
}

// ... and of one family.
const std::vector<json>& variants_of(ModelFamily family) {
  static const std::vector<json> wide_resnet{
      {{"microbatch", 1}},
      {{"microbatch", 2}},
      {{"microbatch", 10}},
      {{"microbatch", 20}},
      {{"microbatch", 25}},
      {{"microbatch", 50}},
      {{"norm", "group"}},
      {{"norm", "group"}, {"microbatch", 5}},
      {{"norm", "group"}, {"microbatch", 1}},
      // All four with plain blocks: what paper-best was at first.
      {{"sparsity", 0.8}, {"precision", "bf16"}, {"microbatch", 5}, {"checkpoint", "blocks"}},
  };
  static const std::vector<json> dynamic_conv{
      {{"sparsity", 0.8}, {"sparse_scope", "all"}},
      {{"sparsity", 0.9}, {"sparse_scope", "all"}},
      {{"microbatch_tokens", 125}},
      {{"microbatch_tokens", 250}},
      {{"microbatch_tokens", 1000}},
      {{"microbatch_tokens", 2000}},
      {{"conv_impl", "direct"}},
      {{"loss_chunk", 125}},
      {{"loss_chunk", 250}},
      {{"loss_chunk", 1000}},
      {{"conv_impl", "direct"}, {"loss_chunk", 250}},
  };
  return family == ModelFamily::wide_resnet ? wide_resnet : dynamic_conv;
}

RunSpec with(RunSpec spec, const json& settings) {
  set_from_json(spec, settings, "a case of the suite");
  return spec;
}

// The techniques beside precision on and off, everything off first.
std::vector<RunSpec> combinations(const RunSpec& base) {
  std::vector<RunSpec> all{base};
  for (const TechniqueSetting& setting : technique_settings(family_of(base.model))) {
    if (setting.technique == "precision") continue;
    for (std::size_t i = 0, count = all.size(); i < count; ++i)
      all.push_back(with(all[i], setting.on));
  }
  return all;
}

// Of one model, as given to validated(); some come twice. Presets are last: see suite_cases().
std::vector<RunSpec> specs_of(RunSpec base) {
  base.preset.clear();
  std::vector<RunSpec> all;
  for (const RunSpec& combination : combinations(base))
    for (const std::string& precision : precision_names())
      all.push_back(with(combination, {{"precision", precision}}));
  for (const std::string& method : sparse_method_names())
    all.push_back(with(base, {{"sparsity", 0.8}, {"sparse_method", method}}));
  for (const std::string& index : sparse_index_names())
    all.push_back(with(base, {{"sparsity", 0.8}, {"sparse_index", index}}));
  const ModelFamily family = family_of(base.model);
  for (const json& variant : variants()) all.push_back(with(base, variant));
  for (const json& variant : variants_of(family)) all.push_back(with(base, variant));
  for (const Preset& preset : presets())
    if (preset.family == family) {
      all.push_back(base);
      set_from_preset(all.back(), preset.name);
    }
  return all;
}

Case make_case(CaseKind kind, RunSpec spec) {
  const bool translates = family_of(spec.model) == ModelFamily::dynamic_conv;
  if (translates && spec.data == "synthetic" && kind != CaseKind::train &&
      spec.sentence_length == 0)
    spec.sentence_length = kSentenceLength;
  std::string impossible;
  try {
    spec = validated(spec);
    // The memory of images is known without them.
    if (kind != CaseKind::memory || translates) require_data_dir(spec);
  } catch (const InputError& error) {
    impossible = error.what();
  }
  return {kind, spec, name_of_case(kind, spec), impossible};
}

}  // namespace

const char* name_of(CaseKind kind) {
  return kind == CaseKind::memory ? "memory" : kind == CaseKind::step ? "step" : "train";
}

std::string name_of_case(CaseKind kind, const RunSpec& spec) {
  std::string name = concat(name_of(kind), "/", case_name(spec));
  if (kind != CaseKind::train) return name;
  name += concat("/recipe=", spec.recipe);
  return name +
         key_values(spec, {"epochs", "max_steps", "learning_rate", "loss_scale",
                           "loss_scale_window", "rewire_stop", "augment", "order", "bn_recalibrate",
                           "average_epochs", "test_images", "test_sentences"}) +
         concat("/seed=", spec.seed);
}

std::string file_name(const Case& c) {
  std::string name;
  const std::string keys = c.name.substr(c.name.find('/') + 1);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const char letter = keys[i];
    // A value has slashes of its own, as a plan of checkpoints; a key ends in "=".
    const bool next_key =
        letter == '/' && keys.substr(i + 1, keys.find('/', i + 1) - i - 1).find('=') != keys.npos;
    const bool plain = std::isalnum(static_cast<unsigned char>(letter)) != 0 ||
                       std::string_view("=._-+,").find(letter) != std::string_view::npos;
    name += next_key ? ',' : plain ? letter : '+';
  }
  return name + ".json";
}

const std::vector<std::string>& suite_models() {
  static const std::vector<std::string> models{"wrn28_2", "dynamic_conv"};
  return models;
}

std::vector<Case> suite_cases(const RunSpec& base, const std::vector<std::string>& models) {
  std::vector<Case> all;
  for (const CaseKind kind : {CaseKind::memory, CaseKind::step, CaseKind::train}) {
    std::map<std::string, std::size_t> places;  // by name
    for (const std::string& model : models) {
      RunSpec of_model = base;
      of_model.model = model;
      for (const RunSpec& spec : specs_of(of_model)) {
        Case made = make_case(kind, spec);
        const auto [place, is_new] = places.emplace(made.name, all.size());
        if (is_new)
          all.push_back(std::move(made));
        else if (!made.spec.preset.empty())  // a combination that is a preset
          all[place->second].spec.preset = made.spec.preset;
      }
    }
  }
  return all;
}

}  // namespace memfloor

#include "suite/presets.h"

#include "core/error.h"

namespace memfloor {

using nlohmann::json;

const std::vector<TechniqueSetting>& technique_settings(ModelFamily family) {
  static const std::vector<TechniqueSetting> wide_resnet{
      {"sparsity", {{"sparsity", 0.8}, {"sparse_method", "dsr"}, {"sparse_index", "bitmap"}}},
      {"precision", {{"precision", "bf16"}}},
      {"microbatching", {{"microbatch", 5}}},
      {"checkpointing", {{"checkpoint", "tapered:3"}}},
  };
  // What is computed again rather than kept belongs to checkpointing: the bands of a convolution,
  // the logits.
  static const std::vector<TechniqueSetting> dynamic_conv{
      {"sparsity",
       {{"sparsity", 0.8},
        {"sparse_scope", "layers"},
        {"sparse_method", "dsr"},
        {"sparse_index", "bitmap"}}},
      {"precision", {{"precision", "bf16"}}},
      {"microbatching", {{"microbatch_tokens", 500}}},
      {"checkpointing", {{"checkpoint", "blocks"}, {"conv_impl", "direct"}, {"loss_chunk", 250}}},
  };
  return family == ModelFamily::wide_resnet ? wide_resnet : dynamic_conv;
}

namespace {

json everything_on(ModelFamily family) {
  json everything = json::object();
  for (const TechniqueSetting& setting : technique_settings(family)) everything.update(setting.on);
  return everything;
}

}  // namespace

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all{
      {"paper-best", ModelFamily::wide_resnet,
       "all four techniques, chosen by us to reach the paper's 60.7x on WRN-28-2 (the paper's own "
       "settings are not known)",
       everything_on(ModelFamily::wide_resnet)},
      {"leanest",
       ModelFamily::wide_resnet,
       "more than 100x in everything at the peak, still with batch norm; ours",
       {{"sparsity", 0.9},
        {"sparse_method", "dsr"},
        {"sparse_index", "bitmap"},
        {"precision", "bf16"},
        {"microbatch", 2},
        {"checkpoint", "recursive/normalization"}}},
      {"paper-best", ModelFamily::dynamic_conv,
       "all four techniques, chosen by us to reach the paper's 8.7x on DynamicConv (the paper's "
       "own "
       "settings are not known)",
       everything_on(ModelFamily::dynamic_conv)},
      {"leanest",
       ModelFamily::dynamic_conv,
       "more than 16x in everything at the peak; ours",
       {{"sparsity", 0.9},
        {"sparse_scope", "all"},
        {"sparse_method", "dsr"},
        {"sparse_index", "bitmap"},
        {"precision", "bf16"},
        {"microbatch_tokens", 250},
        {"checkpoint", "recursive/normalization"},
        {"conv_impl", "direct"},
        {"loss_chunk", 125}}},
  };
  return all;
}

const Preset& find_preset(const std::string& name, ModelFamily family) {
  std::string known;
  for (const Preset& preset : presets()) {
    if (preset.family != family) continue;
    if (preset.name == name) return preset;
    known += (known.empty() ? "" : ", ") + preset.name;
  }
  throw InputError(concat("--preset '", name, "' is not known; this version knows: ", known));
}

std::vector<RunSpec> technique_combinations(const RunSpec& base) {
  const auto& settings = technique_settings(family_of(base.model));
  std::vector<RunSpec> all;
  for (std::size_t bits = 0; bits < std::size_t{1} << settings.size(); ++bits) {
    RunSpec spec = base;
    for (std::size_t t = 0; t < settings.size(); ++t)
      if (bits >> t & 1) set_from_json(spec, settings[t].on, settings[t].technique);
    all.push_back(spec);
  }
  return all;
}

}  // namespace memfloor

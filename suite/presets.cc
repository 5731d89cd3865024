#include "suite/presets.h"

#include "core/error.h"

namespace memfloor {

using nlohmann::json;

const std::vector<TechniqueSetting>& technique_settings() {
  static const std::vector<TechniqueSetting> settings{
      {"sparsity", {{"sparsity", 0.8}, {"sparse_method", "dsr"}, {"sparse_index", "bitmap"}}},
      {"precision", {{"precision", "bf16"}}},
      {"microbatching", {{"microbatch", 5}}},
      {"checkpointing", {{"checkpoint", "blocks"}}},
  };
  return settings;
}

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = [] {
    json everything = json::object();
    for (const TechniqueSetting& setting : technique_settings()) everything.update(setting.on);
    return std::vector<Preset>{
        {"paper-best",
         "all four techniques, chosen by us to reach the paper's 60.7x on WRN-28-2 (the paper's "
         "own "
         "settings are not known)",
         everything},
        {"leanest",
         "more than 100x in everything at the peak, still with batch norm; ours",
         {{"sparsity", 0.9},
          {"sparse_method", "dsr"},
          {"sparse_index", "bitmap"},
          {"precision", "bf16"},
          {"microbatch", 2},
          {"checkpoint", "recursive/normalization"}}},
    };
  }();
  return all;
}

const Preset& find_preset(const std::string& name) {
  std::string known;
  for (const Preset& preset : presets()) {
    if (preset.name == name) return preset;
    known += (known.empty() ? "" : ", ") + preset.name;
  }
  throw InputError(concat("--preset '", name, "' is not known; this version knows: ", known));
}

std::vector<RunSpec> technique_combinations(const RunSpec& base) {
  const auto& settings = technique_settings();
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

// Named settings: the presets, and what "on" means for each technique. The paper does not state its
// own (sparsity level, part sizes, number of checkpoints), so all of these are our choices.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "suite/models.h"
#include "suite/run_spec.h"

namespace memfloor {

struct Preset {
  std::string name;
  ModelFamily family;
  std::string description;
  nlohmann::json settings;  // spec keys and their values
};

const std::vector<Preset>& presets();
/// Of a family's models. Throws InputError, listing the names.
const Preset& find_preset(const std::string& name, ModelFamily family = ModelFamily::wide_resnet);

/// What a technique's "on" stands for in the table of combinations of a family's models.
struct TechniqueSetting {
  std::string technique;
  nlohmann::json on;
};
const std::vector<TechniqueSetting>& technique_settings(
    ModelFamily family = ModelFamily::wide_resnet);

/// All on/off combinations of the techniques over `base`, everything off first, everything on last.
std::vector<RunSpec> technique_combinations(const RunSpec& base);

}  // namespace memfloor

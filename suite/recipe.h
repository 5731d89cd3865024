// Training recipes: how long, with which optimizer, and which learning rate when.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/optimizer.h"
#include "suite/models.h"
#include "suite/run_spec.h"

namespace memfloor {

/// Where in the run an update is; all zero-based.
struct Progress {
  std::int64_t update = 0, total_updates = 0;
  std::int64_t updates_per_epoch = 1;
};

struct Recipe {
  std::string name;
  ModelFamily family;
  std::int64_t epochs = 0, updates = 0;  // whichever comes first; 0: no limit
  bool shortened = false;                // its numbers are marked wherever they appear
  std::string description;
  std::function<std::unique_ptr<Optimizer>()> optimizer;
  std::function<float(const Progress&)> learning_rate;
  std::int64_t averaged_epochs = 0;  // whose last weights are averaged at the end; 0: none
  /// Share of the run after which a sparse pattern stays, so that what is averaged has one pattern.
  double rewire_stop = 0.95;  // DSR's, which stops at epoch 190 of 200
};

const std::vector<Recipe>& recipes();
/// Of the spec's model. Throws InputError, listing the names.
const Recipe& find_recipe(const RunSpec& spec);

}  // namespace memfloor

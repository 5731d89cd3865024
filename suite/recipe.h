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
};

const std::vector<Recipe>& recipes();
/// Of the spec's model. Throws InputError, listing the names.
const Recipe& find_recipe(const RunSpec& spec);
/// Whether there is one.
bool is_recipe(const RunSpec& spec);

/// The first and the last of the run's epochs (the first is 1) whose last weights are averaged at
/// its end, as many as the spec says, or else the recipe; none: that is one or none, or the run has
/// one epoch.
struct AveragedEpochs {
  std::int64_t first = 1, last = 0;
  bool contain(std::int64_t epoch) const { return first <= epoch && epoch <= last; }
};
AveragedEpochs averaged_epochs(const RunSpec& spec, std::int64_t updates_per_epoch);

/// The spec's rewire_stop, or earlier: what is averaged must have one pattern of non-zeros.
double rewire_stop_of(const RunSpec& spec, std::int64_t updates_per_epoch);

}  // namespace memfloor

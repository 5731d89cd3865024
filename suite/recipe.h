// Training recipes: how long, and which learning rate when.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace memfloor {

/// Where in the run an update is; all zero-based.
struct Progress {
  std::int64_t update = 0, total_updates = 0;
  std::int64_t updates_per_epoch = 1;
};

struct Recipe {
  std::string name;
  std::int64_t epochs = 0;
  bool shortened = false;  // its numbers are marked wherever they appear
  std::string description;
  std::function<float(const Progress&)> learning_rate;

  // SGD, both recipes: Nesterov momentum 0.9, coupled L2 decay 5e-4 of every parameter (DSR's
  // WRN-28-2 settings, arXiv:1902.05967, reference code).
  static constexpr float kMomentum = 0.9f;
  static constexpr float kWeightDecay = 5e-4f;
};

const std::vector<Recipe>& recipes();
/// Throws InputError, listing the names.
const Recipe& find_recipe(const std::string& name);

}  // namespace memfloor

#include "suite/recipe.h"

#include <algorithm>

#include "core/error.h"

namespace memfloor {
namespace {

// 0.1; 0.02 from epoch 60; 0.004 from 120; 0.0008 from 160: the schedule of the DSR reference code.
float dsr_steps(const Progress& p) {
  const std::int64_t epoch = p.update / p.updates_per_epoch;
  return epoch < 60 ? 0.1f : epoch < 120 ? 0.02f : epoch < 160 ? 0.004f : 0.0008f;
}

// Linear from 0 to 0.2 over the first fifth of the updates, then linearly to 0. Ours.
float one_cycle(const Progress& p) {
  constexpr double kPeak = 0.2;
  const double warm = std::max<double>(1, static_cast<double>(p.total_updates) / 5);
  const double done = static_cast<double>(p.update) + 1,
               total = static_cast<double>(p.total_updates);
  const double share = done <= warm ? done / warm : (total + 1 - done) / (total + 1 - warm);
  return static_cast<float>(kPeak * share);
}

}  // namespace

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> all{
      {"paper", 200, false, "200 epochs, steps at 60, 120 and 160 (the DSR code's settings)",
       dsr_steps},
      {"short", 12, true, "12 epochs, one linear cycle to 0.2 and back, meant for CPUs", one_cycle},
  };
  return all;
}

const Recipe& find_recipe(const std::string& name) {
  std::string known;
  for (const Recipe& recipe : recipes()) {
    if (recipe.name == name) return recipe;
    known += (known.empty() ? "" : ", ") + recipe.name;
  }
  throw InputError(concat("--recipe '", name, "' is not known; this version knows: ", known));
}

}  // namespace memfloor

#include "suite/recipe.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace memfloor {
namespace {

// ---- WideResNet-28-2: DSR's settings (arXiv:1902.05967, reference code)

// Nesterov momentum, coupled L2 decay of every parameter.
std::unique_ptr<Optimizer> dsr_sgd() { return std::make_unique<Sgd>(0.9f, 5e-4f, true); }

// 0.1; 0.02 from epoch 60; 0.004 from 120; 0.0008 from 160.
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

// ---- DynamicConv: fairseq's lightconv_iwslt_de_en (examples/pay_less_attention_paper)

std::unique_ptr<Optimizer> fairseq_adam() {
  return std::make_unique<Adam>(AdamRule{0.9f, 0.98f, 1e-8f, 1e-4f});
}

// Linear from 1e-7 to `peak` over `warm` updates, then with the inverse root of the update.
float inverse_sqrt(const Progress& p, double peak, double warm) {
  constexpr double kStart = 1e-7;
  const double update = static_cast<double>(p.update) + 1;
  return static_cast<float>(update < warm ? kStart + update * (peak - kStart) / warm
                                          : peak * std::sqrt(warm / update));
}

}  // namespace

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> all{
      {"paper", ModelFamily::wide_resnet, 200, 0, false,
       "200 epochs, steps at 60, 120 and 160 (the DSR code's settings)", dsr_sgd, dsr_steps},
      {"short", ModelFamily::wide_resnet, 12, 0, true,
       "12 epochs, one linear cycle to 0.2 and back, meant for CPUs", dsr_sgd, one_cycle},
      {"paper", ModelFamily::dynamic_conv, 0, 50000, false,
       "50,000 updates, 4,000 of warm-up to 5e-4, then inverse square root; the last 10 epochs' "
       "weights averaged (fairseq's settings)",
       fairseq_adam, [](const Progress& p) { return inverse_sqrt(p, 5e-4, 4000); }, 10},
      {"short", ModelFamily::dynamic_conv, 15, 0, true,
       "15 epochs, 400 updates of warm-up to 1e-3, then inverse square root; the last 3 epochs' "
       "weights averaged, meant for CPUs",
       fairseq_adam, [](const Progress& p) { return inverse_sqrt(p, 1e-3, 400); }, 3},
  };
  return all;
}

const Recipe& find_recipe(const RunSpec& spec) {
  std::string known;
  for (const Recipe& recipe : recipes()) {
    if (recipe.family != family_of(spec.model)) continue;
    if (recipe.name == spec.recipe) return recipe;
    known += (known.empty() ? "" : ", ") + recipe.name;
  }
  throw InputError(
      concat("--recipe '", spec.recipe, "' is not known; this version knows: ", known));
}

bool is_recipe(const RunSpec& spec) {
  const ModelFamily family = family_of(spec.model);
  return std::any_of(recipes().begin(), recipes().end(), [&](const Recipe& recipe) {
    return recipe.family == family && recipe.name == spec.recipe;
  });
}

AveragedEpochs averaged_epochs(const RunSpec& spec, std::int64_t updates_per_epoch) {
  const std::int64_t last =
      (updates_of(spec, updates_per_epoch) + updates_per_epoch - 1) / updates_per_epoch;
  const std::int64_t wanted =
      spec.average_epochs > 0 ? spec.average_epochs : find_recipe(spec).averaged_epochs;
  const std::int64_t first = std::max<std::int64_t>(1, last + 1 - wanted);
  return first < last ? AveragedEpochs{first, last} : AveragedEpochs{};
}

double rewire_stop_of(const RunSpec& spec, std::int64_t updates_per_epoch) {
  const AveragedEpochs averaged = averaged_epochs(spec, updates_per_epoch);
  if (averaged.last == 0) return spec.rewire_stop;
  // A whole epoch before the first weights are kept, because updates lag behind minibatches where
  // some are skipped.
  const std::int64_t still = std::max<std::int64_t>(1, (averaged.first - 1) * updates_per_epoch);
  return std::min(spec.rewire_stop, static_cast<double>(still) /
                                        static_cast<double>(updates_of(spec, updates_per_epoch)));
}

}  // namespace memfloor

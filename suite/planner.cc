#include "suite/planner.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/error.h"
#include "suite/image_task.h"
#include "suite/models.h"
#include "suite/predictor.h"
#include "techniques/registry.h"

namespace memfloor {
namespace {

constexpr double kSparsities[] = {0, 0.5, 0.6, 0.7, 0.8, 0.9};
const char* const kCheckpoints[] = {"none",   "normalization", "tapered:3",
                                    "blocks", "sqrt/blocks",   "recursive/normalization"};
// Of images and of tokens; and the whole batch.
constexpr std::int64_t kImages[] = {1, 2, 4, 5, 10, 20, 25, 50};
constexpr std::int64_t kTokens[] = {125, 250, 500, 1000, 2000};
// Sentences of DynamicConv's predictions: those of a corpus are about as long on average.
constexpr std::int64_t kSentenceLength = 25;

bool translates(const RunSpec& spec) { return family_of(spec.model) == ModelFamily::dynamic_conv; }

std::int64_t& part_of(RunSpec& spec) {
  return translates(spec) ? spec.microbatch_tokens : spec.microbatch;
}

std::vector<std::int64_t> parts_of(RunSpec spec) {
  std::vector<std::int64_t> parts = translates(spec)
                                        ? std::vector(std::begin(kTokens), std::end(kTokens))
                                        : std::vector(std::begin(kImages), std::end(kImages));
  const std::int64_t whole = translates(spec) ? spec.max_tokens : spec.batch_size;
  std::erase_if(parts, [&](std::int64_t part) { return part >= whole; });
  parts.push_back(whole);
  return parts;
}

// With `checkpoint`, and what a model has beside it for making again rather than keeping.
void set_checkpoint(RunSpec& spec, const std::string& checkpoint) {
  spec.checkpoint = checkpoint;
  if (!translates(spec) || checkpoint == "none") return;
  spec.conv_impl = "direct";
  spec.loss_chunk = 250;
}

class Search {
 public:
  Search(const RunSpec& base, std::int64_t budget)
      : budget_(budget), backend_(make_cpu_backend(static_cast<int>(base.threads))) {}

  /// The largest part size that fits: smaller ones cost accuracy and save no work.
  void largest_part(RunSpec spec, const std::vector<std::int64_t>& parts) {
    std::size_t low = 0, high = parts.size();  // parts[low - 1] fits, parts[high] does not
    std::optional<PlannedRun> best;
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      part_of(spec) = parts[middle];
      PlannedRun run = predicted(spec);
      if (smallest_.peak_bytes == 0 || run.peak_bytes < smallest_.peak_bytes) smallest_ = run;
      if (run.peak_bytes > budget_) {
        high = middle;
      } else {
        best = std::move(run);
        low = middle + 1;
      }
    }
    if (best) fitting_.push_back(*best);
  }

  std::vector<PlannedRun> best_first() {
    if (fitting_.empty()) return {smallest_};
    std::stable_sort(fitting_.begin(), fitting_.end(), [](const auto& a, const auto& b) {
      return std::pair(a.accuracy_risk, a.relative_work) <
             std::pair(b.accuracy_risk, b.relative_work);
    });
    std::vector<PlannedRun> front;
    for (const PlannedRun& run : fitting_)
      if (front.empty() || run.relative_work < front.back().relative_work) front.push_back(run);
    return front;
  }

 private:
  PlannedRun predicted(const RunSpec& spec) {
    const DataSize size;
    // Parts are alike: where they divide everything, two of them show the peak of a hundred.
    RunSpec shown = spec;
    const std::int64_t two = 2 * spec.microbatch;
    if (!translates(spec) && spec.batch_size % two == 0 && size.train % two == 0 &&
        size.train % spec.batch_size == 0)
      shown.batch_size = two;
    const Prediction prediction = predict(shown, *make_task(shown, DataUse::sizes), backend_);
    PlannedRun run;
    run.spec = spec;
    run.peak_bytes = std::max(prediction.training.peak_total, prediction.evaluation.peak_total);
    const MultiplyAdds& work = prediction.work;
    const auto needed = static_cast<double>(work.forward + work.backward);
    run.relative_work = (needed + static_cast<double>(work.recompute)) / needed;
    run.accuracy_risk = accuracy_risk(spec);
    return run;
  }

  std::int64_t budget_;
  std::shared_ptr<Backend> backend_;
  std::vector<PlannedRun> fitting_;
  PlannedRun smallest_;
};

// Straight lines between known points, x ascending.
double interpolate(const std::vector<std::pair<double, double>>& points, double x) {
  for (std::size_t i = 1; i < points.size(); ++i)
    if (x <= points[i].first) {
      const auto [x0, y0] = points[i - 1];
      const auto [x1, y1] = points[i];
      return y0 + (y1 - y0) * std::clamp((x - x0) / (x1 - x0), 0.0, 1.0);
    }
  return points.back().second;
}

}  // namespace

double accuracy_risk(const RunSpec& spec) {
  double points =
      interpolate({{0, 0}, {0.5, 0}, {0.6, 0.04}, {0.7, 0.13}, {0.8, 0.30}, {0.9, 1.11}, {1, 10}},
                  spec.sparsity);
  // Layer norm does not see how a batch is cut.
  if (!translates(spec) && spec.microbatch < spec.batch_size)
    points += interpolate({{0, 4.6}, {1, 2.3}, {2.32, 0.7}, {4.64, 0.1}, {6.64, 0}},
                          std::log2(static_cast<double>(spec.microbatch)));
  const PrecisionPolicy precision = make_precision(spec.precision, spec.rounding);
  if (precision.activation != Dtype::f32) points += 0.05;
  if (precision.optimizer_state != Dtype::f32) points += 0.1;
  return points;
}

std::vector<PlannedRun> plan_for_budget(const RunSpec& given, std::int64_t budget_bytes) {
  RunSpec base = validated(given);
  base.memory_budget = 0;
  if (translates(base)) {
    base.data = "synthetic", base.data_dir = "";
    if (base.sentence_length == 0) base.sentence_length = kSentenceLength;
  }
  const std::vector<std::int64_t> parts = parts_of(base);

  Search search(base, budget_bytes);
  for (const double sparsity : kSparsities)
    for (const std::string& precision : precision_names())
      for (const char* checkpoint : kCheckpoints) {
        RunSpec spec = base;
        spec.sparsity = sparsity;
        spec.precision = precision;
        set_checkpoint(spec, checkpoint);
        search.largest_part(validated(spec), parts);
      }
  return search.best_first();
}

}  // namespace memfloor

#include "suite/suite_estimate.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/error.h"
#include "core/memory_source.h"
#include "suite/models.h"
#include "suite/samples.h"
#include "suite/session.h"

namespace memfloor {
namespace {

using nlohmann::json;

// Ours, rough: how long a prediction takes, and a process to start.
constexpr double kPredictionSeconds = 0.3;
// Steps that command measure makes, its evaluation included.
constexpr double kMeasuredSteps = 3;
constexpr double kWarmUpSteps = 2;  // of command step
// Sentences are translated word by word, by a beam of five; in training steps a sentence.
constexpr double kTranslationSteps = 0.1;
constexpr double kTestSentences = 2000;  // of a whole test set
// The share of a matrix product's speed that training reaches.
constexpr double kEfficiency = 0.4;
constexpr double kFixedSpeed = 50e9;  // operations a second, for costs

// Of a product of matrices of 512 rows and columns, operations a second.
double measure_machine(std::int64_t threads) {
  constexpr std::int64_t kSize = 512;
  const auto backend = make_cpu_backend(static_cast<int>(threads));
  const Projection& product = backend->projection({kSize, kSize});
  Ledger ledger(heap_memory());
  const auto zeros = [&](std::int64_t elements) {
    Block block = ledger.allocate(elements * 4, Category::workspace, "operand");
    backend->tensor_ops().zero(block.data(), block.bytes());
    return block;
  };
  const Block x = zeros(kSize * kSize), y = zeros(kSize * kSize),
              weights = zeros(product.plan().forward_weights.elements),
              scratch = zeros(product.plan().forward_scratch / 4 + 1);
  double best = 1;
  for (int run = 0; run < 4; ++run) {
    const auto start = std::chrono::steady_clock::now();
    product.forward(kSize, x.data(), weights.data(), nullptr, false, y.data(), scratch.data());
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return 2.0 * kSize * kSize * kSize / best;
}

std::string speed_key(const std::string& model, const std::string& precision) {
  return model + " " + precision;
}

}  // namespace

SuiteEstimate::SuiteEstimate(const std::string& folder) {
  std::map<std::string, std::vector<double>> speeds;
  for (const char* command : {"step", "train"}) {
    std::error_code error;
    for (std::filesystem::directory_iterator entry(folder + "/" + command, error), end;
         !error && entry != end; entry.increment(error)) {
      const json result = json::parse(std::ifstream(entry->path()), nullptr, false);
      try {
        const json &spec = result.at("spec"), &flops = result.at("flops");
        double operations = 0;  // of a sample
        for (const char* part : {"forward", "backward", "recompute"})
          operations += flops.at(part).get<double>();
        for (const char* unit : {"images_per_second", "target_tokens_per_second"})
          if (const json& rate = result.at("time").value(unit, json()); rate.is_number()) {
            const std::string model = spec.at("model");
            speeds[model].push_back(operations * rate.get<double>());
            speeds[speed_key(model, spec.at("precision"))].push_back(speeds[model].back());
          }
      } catch (const json::exception&) {  // no result: it tells nothing
      }
    }
  }
  for (auto& [key, values] : speeds) measured_speeds_[key] = median(std::move(values));
}

const SuiteEstimate::Workload& SuiteEstimate::workload(const RunSpec& spec) {
  RunSpec plain = without_techniques(spec);
  plain.memory_budget = 0;  // the techniques may need less
  const std::string key =
      concat(case_name(plain), plain.data_dir, plain.test_images, "/", plain.seed);
  const auto [place, is_new] = workloads_.emplace(key, Workload{});
  if (!is_new) return place->second;
  const Session session = predict_session(plain);
  const Task& task = *session.task;
  const MultiplyAdds& work = session.prediction.work;
  const auto terms = static_cast<double>(session.prediction.work_terms);
  double evaluated = 0;
  for (const Part& part : task.evaluation_parts())
    evaluated += static_cast<double>(task.loss_terms(part));
  const auto forward = static_cast<double>(work.forward),
             update = static_cast<double>(work.forward + work.backward);
  place->second = {2 * update, evaluated / terms * forward / update, task.minibatches_per_epoch()};
  return place->second;
}

double SuiteEstimate::operations(const SuiteTask& task) {
  const RunSpec& spec = task.spec;
  if (task.command == "predict" || task.command == "timeline") return 0;
  const Workload& work = workload(spec);
  double steps = kMeasuredSteps;
  if (task.command == "step") steps = kWarmUpSteps + static_cast<double>(task.steps);
  if (task.command == "train") {
    const auto updates = static_cast<double>(updates_of(spec, work.minibatches_per_epoch));
    const double epochs = std::max(1.0, updates / static_cast<double>(work.minibatches_per_epoch));
    steps = updates + epochs * work.evaluation_steps;
    if (family_of(spec.model) == ModelFamily::dynamic_conv)
      steps +=
          kTranslationSteps *
          (spec.test_sentences > 0 ? static_cast<double>(spec.test_sentences) : kTestSentences);
  }
  // Most plans run forward about once more.
  const double recompute = spec.checkpoint == "none" ? 1.0 : 4.0 / 3;
  return steps * recompute * work.operations_per_step;
}

double SuiteEstimate::speed(const RunSpec& spec) {
  for (const std::string& key : {speed_key(spec.model, spec.precision), spec.model})
    if (const auto found = measured_speeds_.find(key); found != measured_speeds_.end())
      return found->second;
  if (machine_speed_ == 0) machine_speed_ = measure_machine(spec.threads);
  return kEfficiency * machine_speed_;
}

double SuiteEstimate::seconds(const SuiteTask& task) {
  if (!task.impossible.empty()) return 0;
  const double count = operations(task);
  return kPredictionSeconds + (count > 0 ? count / speed(task.spec) : 0);
}

double SuiteEstimate::cost(const SuiteTask& task) {
  return task.impossible.empty() ? kPredictionSeconds + operations(task) / kFixedSpeed : 0;
}

}  // namespace memfloor

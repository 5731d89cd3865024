#include "suite/result.h"

#include <algorithm>
#include <cstdio>

#include "core/atomic_file.h"
#include "core/error.h"
#include "suite/environment.h"
#include "techniques/registry.h"

namespace memfloor {
namespace {

using nlohmann::json;

json to_json(const ByteSplit& split) {
  json object = json::object();
  for (int c = 0; c < kCategoryCount; ++c) object[name_of(static_cast<Category>(c))] = split[c];
  return object;
}

json memory_json(const Session& session) {
  const bool measured = session.trainer != nullptr;
  const MemoryRecord& training =
      measured ? session.trainer->training_record : session.prediction.training;
  const MemoryRecord& evaluation =
      measured ? session.trainer->evaluation_record : session.prediction.evaluation;
  return {{"peak_total_bytes", training.peak_total},
          {"at_peak", to_json(training.at_peak)},
          {"category_peak", to_json(training.category_peak)},
          {"paper",
           {{"model_bytes", training.paper_model()},
            {"optimizer_bytes", training.paper_optimizer()},
            {"activation_bytes", training.paper_activation()},
            {"total_bytes", training.paper_total()}}},
          {"allocated_peak_bytes", training.allocated_peak},
          {"reserved_bytes", session.prediction.layout.total_bytes},
          {"evaluation_peak_bytes", evaluation.peak_total},
          {"library_bytes", session.library_bytes},
          {"rss_anon_delta_bytes",
           measured ? json(resident_anonymous_bytes() - session.resident_at_setup) : json()}};
}

// Where the non-zeros are at the end; null for dense training.
json sparse_layers(const ParameterStore& parameters) {
  json layers = json::array();
  for (std::size_t h = 0; h < parameters.specs().size(); ++h) {
    const ParameterSpec& spec = parameters.specs()[h];
    if (!parameters.compressed(static_cast<int>(h))) continue;
    std::vector<std::uint8_t> stored(static_cast<std::size_t>(spec.elements()));
    parameters.read_pattern(static_cast<int>(h), stored.data());
    const auto non_zeros = std::count(stored.begin(), stored.end(), 1);
    layers.push_back(
        {{"name", spec.name}, {"positions", spec.elements()}, {"non_zeros", non_zeros}});
  }
  return layers.empty() ? json() : layers;
}

// Whether the training was less than the recipe says, or the recipe is not the paper's.
bool is_cut(const Recipe& recipe, const RunSpec& spec, const TrainingState& state) {
  if (recipe.shortened) return true;
  if (recipe.updates > 0) return state.updates < recipe.updates;
  return spec.max_steps > 0 || spec.epochs < recipe.epochs;
}

const Recipe& paper_recipe(RunSpec spec) {
  spec.recipe = "paper";
  return find_recipe(spec);
}

std::string length_of(const Recipe& recipe) {
  return recipe.updates > 0 ? concat(recipe.updates, " updates") : concat(recipe.epochs, " epochs");
}

}  // namespace

nlohmann::json make_result(const std::string& command, const Session& session,
                           const TrainingOutcome* outcome) {
  const RunSpec& spec = session.spec;
  json notes = session.notes;
  const Recipe& recipe = find_recipe(spec);
  if (outcome && is_cut(recipe, spec, outcome->state))
    notes.push_back(concat("shortened training: ", outcome->state.updates,
                           " updates; the paper recipe runs ", length_of(paper_recipe(spec)),
                           ", so the quality is not comparable with published figures"));
  if (spec.data == "synthetic" && outcome)
    notes.push_back(
        "synthetic data: the quality shows that training works and says nothing about real data");
  if (outcome || command == "evaluate") {
    if (spec.test_images > 0)
      notes.push_back(concat("shortened evaluation: accuracy is over the first ", spec.test_images,
                             " test images only"));
    if (spec.test_sentences > 0)
      notes.push_back(concat("shortened evaluation: BLEU is over the first ", spec.test_sentences,
                             " test sentences only"));
  }
  // Evaluation uses running statistics, whatever its part.
  if (command != "evaluate" && spec.norm == "batch" && spec.microbatch < spec.batch_size)
    notes.push_back(concat("batch norm normalises over parts of ", spec.microbatch,
                           " samples, which is another training than over the whole minibatch"));
  if (make_precision(spec.precision).master)
    notes.push_back(
        "FP32 master weights are counted as optimizer state: with 16-bit weights and gradients, "
        "model and optimizer together take as much as in FP32");
  if (outcome && outcome->state.skipped > 0)
    notes.push_back(concat("minibatches skipped because gradients overflowed FP16: ",
                           outcome->state.skipped, " of ", outcome->state.minibatches()));
  if (outcome)
    for (const std::string& note : session.trainer->parameters().notes()) notes.push_back(note);
  // Peaks cover the whole run, the prediction one number of threads.
  if (outcome && outcome->state.threads.size() > 1)
    notes.push_back(
        "continued with another number of threads: workspace and what includes it are the largest "
        "of all");
  else if (session.trainer)
    if (const std::string difference = prediction_difference(session.prediction, *session.trainer);
        !difference.empty())
      notes.push_back("prediction and measurement differ: " + difference);

  json quality{{"test_accuracy", nullptr}, {"curve", json::array()}};
  if (outcome) {
    quality["curve"] = outcome->state.curve;
    // Of the last epoch's entry, what is a key of its own.
    for (const char* key : {"test_accuracy", "perplexity"})
      if (!outcome->state.curve.empty() && outcome->state.curve.back().contains(key))
        quality[key] = outcome->state.curve.back()[key];
    for (const auto& [key, value] : outcome->final_quality.items())
      if (key != "test_loss") quality[key] = value;  // the curve has those of epochs
    if (outcome->averaged_epochs > 0)
      notes.push_back(concat("the final weights are the average of those after the last ",
                             outcome->averaged_epochs, " epochs"));
    if (session.trainer->peak_with_weights > 0)
      notes.push_back(concat("translating took at most ", session.trainer->peak_with_weights,
                             " bytes, weights and optimizer state included"));
  }
  const auto timed = [&](double value) { return value > 0 ? json(value) : json(); };
  json time{{"step_seconds_median", timed(outcome ? outcome->step_seconds_median : 0)},
            {"images_per_second", nullptr}};
  time[concat(session.task->unit(), "_per_second")] =
      timed(outcome ? outcome->terms_per_second : 0);
  // A multiply and an add are two operations; per sample, or per target token.
  const MultiplyAdds& work = session.prediction.work;
  const auto flops = [&](std::int64_t multiply_adds) {
    return 2 * multiply_adds / session.prediction.work_terms;
  };
  return {{"schema_version", 1},
          {"command", command},
          {"spec", memfloor::to_json(spec)},
          {"memory", memory_json(session)},
          {"quality", quality},
          {"time", time},
          {"flops",
           {{"forward", flops(work.forward)},
            {"backward", flops(work.backward)},
            {"recompute", flops(work.recompute)}}},
          {"sparse_layers", outcome ? sparse_layers(session.trainer->parameters()) : json()},
          {"environment", environment_of(*session.backend, session.task->provenance())},
          {"notes", notes}};
}

std::string to_text(const nlohmann::json& result) {
  return result.dump(2, ' ', false, json::error_handler_t::replace);
}

void write_result(const std::string& path, const nlohmann::json& result) {
  AtomicFile file(path);
  file.write(to_text(result) + "\n");
  file.commit();
}

void check_writable(const std::string& path) {
  if (!path.empty()) AtomicFile probe(path);
}

std::string memory_table(const nlohmann::json& result) {
  const json& memory = result["memory"];
  std::string table;
  const auto row = [&](const std::string& name, std::int64_t a, std::int64_t b) {
    char line[128];
    std::snprintf(line, sizeof line, "  %-18s %15lld %15lld\n", name.c_str(),
                  static_cast<long long>(a), static_cast<long long>(b));
    table += line;
  };
  table += "  bytes                     at the peak        own peak\n";
  for (int c = 0; c < kCategoryCount; ++c) {
    const char* name = name_of(static_cast<Category>(c));
    row(name, memory["at_peak"][name], memory["category_peak"][name]);
  }
  const auto line = [&](const char* name, const json& value) {
    if (value.is_null()) return;
    char text[128];
    std::snprintf(text, sizeof text, "  %-18s %15lld  %s\n", name, value.get<long long>(),
                  human_bytes(value.get<long long>()).c_str());
    table += text;
  };
  line("peak_total", memory["peak_total_bytes"]);
  table += "  the paper's convention (category peaks)\n";
  line("model", memory["paper"]["model_bytes"]);
  line("optimizer", memory["paper"]["optimizer_bytes"]);
  line("activation", memory["paper"]["activation_bytes"]);
  line("paper.total", memory["paper"]["total_bytes"]);
  table += "  beside them\n";
  line("allocated_peak", memory["allocated_peak_bytes"]);
  line("reserved", memory["reserved_bytes"]);
  line("evaluation_peak", memory["evaluation_peak_bytes"]);
  line("library", memory["library_bytes"]);
  line("rss_anon_delta", memory["rss_anon_delta_bytes"]);
  return table;
}

}  // namespace memfloor

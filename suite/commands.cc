// What each command does.
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <numeric>

#include "core/error.h"
#include "suite/benchmarks.h"
#include "suite/cases.h"
#include "suite/command_line.h"
#include "suite/planner.h"
#include "suite/presets.h"
#include "suite/progress_line.h"
#include "suite/result.h"
#include "suite/session.h"
#include "suite/timed_steps.h"
#include "suite/timeline.h"
#include "suite/training_run.h"
#include "suite/weights_file.h"
#include "techniques/registry.h"

namespace memfloor {
namespace {

using nlohmann::json;

// Writes where asked to, then prints: a reader that went away, as in `| head`, must not cost the
// file. A result that cannot be written is not lost: it goes to standard output.
void report(const CommandLine& line, const std::string& out, const json& result,
            const std::string& text) {
  std::exception_ptr failure;
  try {
    if (!out.empty()) write_result(out, result);
  } catch (const Error&) {
    failure = std::current_exception();
  }
  if (!line.json) std::cout << text;
  if (line.json || failure) std::cout << to_text(result) << "\n";
  std::cout << std::flush;
  if (failure) std::rethrow_exception(failure);
  if (!line.json && !out.empty()) std::cout << "result: " << out << std::endl;
}

std::string heading(const Session& session) {
  return concat(case_name(session.spec), ", ", session.spec.threads, " threads\n");
}

void start_from(const std::string& path, Session& session, bool need_running) {
  Trainer& trainer = *session.trainer;
  if (!path.empty())
    load_weights(path, trainer.parameters(), trainer.running(), trainer.ops(), need_running);
}

int list(const CommandLine& line) {
  if (line.json) {
    json keys = json::array(), names = json::array(), all_recipes = json::array();
    for (const SpecKey& key : spec_keys())
      keys.push_back({{"key", key.name}, {"flag", key.flag()}, {"help", key.help}});
    for (const Recipe& recipe : recipes())
      all_recipes.push_back({{"name", recipe.name},
                             {"model", name_of(recipe.family)},
                             {"epochs", recipe.epochs},
                             {"updates", recipe.updates},
                             {"shortened", recipe.shortened}});
    json combinations = json::array();
    for (const RunSpec& spec : technique_combinations(line.spec))
      combinations.push_back(to_json(validated(spec)));
    json all_presets = json::array();
    for (const Preset& preset : presets())
      all_presets.push_back({{"name", preset.name},
                             {"model", name_of(preset.family)},
                             {"description", preset.description},
                             {"settings", preset.settings}});
    for (const std::string& name : benchmark_names(line)) names.push_back(name);
    std::cout << json{{"models", suite_models()},
                      {"data", {"synthetic", "cifar10", "translation"}},
                      {"precision", precision_names()},
                      {"checkpoint", checkpoint_names()},
                      {"presets", all_presets},
                      {"combinations", combinations},
                      {"sparse_method", sparse_method_names()},
                      {"sparse_scope", sparse_scope_names()},
                      {"sparse_index", sparse_index_names()},
                      {"recipes", all_recipes},
                      {"spec_keys", keys},
                      {"default_spec", to_json(validated(RunSpec{}))},
                      {"benchmarks", names}}
                     .dump(2)
              << std::endl;
    return 0;
  }
  std::cout << "models: wrn28_2 (any wrn<depth>_<width>), dynamic_conv\ndata: synthetic, cifar10, "
               "translation\n"
               "precision:";
  for (const std::string& name : precision_names()) std::cout << ' ' << name;
  std::cout << "\ncheckpoint:";
  for (const std::string& name : checkpoint_names()) std::cout << ' ' << name;
  std::cout << "\nsparse methods:";
  for (const std::string& name : sparse_method_names()) std::cout << ' ' << name;
  std::cout << "\nsparse scopes:";
  for (const std::string& name : sparse_scope_names()) std::cout << ' ' << name;
  std::cout << "\nsparse indices:";
  for (const std::string& name : sparse_index_names()) std::cout << ' ' << name;
  std::cout << "\n";
  for (const Preset& preset : presets())
    std::cout << "preset " << preset.name << " of " << name_of(preset.family) << ": "
              << preset.description << "\n  " << preset.settings.dump() << "\n";
  for (const Recipe& recipe : recipes())
    std::cout << "recipe " << recipe.name << " of " << name_of(recipe.family) << ": "
              << recipe.description << "\n";
  std::cout << "spec keys:\n";
  for (const SpecKey& key : spec_keys())
    std::printf("  %-16s %s\n", key.flag().c_str(), key.help.c_str());
  std::cout << "benchmarks:\n";
  for (const std::string& name : benchmark_names(line)) std::cout << "  " << name << "\n";
  return 0;
}

std::string notes_text(const json& result) {
  std::string notes;
  for (const json& note : result["notes"]) notes += "note: " + note.get<std::string>() + "\n";
  return notes;
}

// What `task` and the end of a training or evaluation say of quality.
std::string quality_text(const Task& task, const json& evaluated, const json& final_quality) {
  std::string text = task.quality_text(evaluated);
  if (final_quality.contains("bleu"))
    text += concat(", BLEU ", fixed(final_quality["bleu"].get<double>(), 2));
  return text;
}

std::string outcome_text(const Session& session, const json& result,
                         const TrainingOutcome& outcome) {
  return concat(quality_text(*session.task, outcome.state.curve.back(), outcome.final_quality),
                ", ", fixed(outcome.terms_per_second, 1), " ", session.task->unit(),
                "/s (median step ", fixed(1e3 * outcome.step_seconds_median, 1), " ms)\n",
                notes_text(result));
}

// One training. Returns its quality, or nothing when it was interrupted.
std::optional<json> train_once(const CommandLine& line, const RunSpec& spec,
                               const std::string& out) {
  if (!line.save_sparse.empty() && spec.sparsity == 0)
    throw InputError(
        "--save-sparse is for weights that are stored compressed; give --sparsity above 0, or "
        "--save-weights instead");
  check_writable(out);
  check_writable(line.save_weights);
  check_writable(line.save_sparse);
  const std::string snapshot = out.empty() ? "" : out + ".snapshot";
  check_writable(snapshot);  // this also clears what a killed run left half-written
  Session session = open_session(spec);
  start_from(line.init_weights, session, false);
  TrainingOptions options;
  options.snapshot_path = snapshot;
  options.snapshot_every = line.snapshot_every;
  options.resume = line.resume;
  options.loss_log = line.log_loss;
  TrainingRun run(session, options);
  const TrainingOutcome outcome = run.run();
  if (outcome.interrupted) {
    std::cerr << "memfloor: interrupted after update " << outcome.state.updates << " of "
              << run.total_updates()
              << (out.empty() ? "; without --out there is no snapshot to continue from"
                  : std::filesystem::exists(snapshot)
                      ? "; continue with the same command and --resume"
                      : "; there is no snapshot to continue from, because it could not be written")
              << std::endl;
    return std::nullopt;
  }
  std::exception_ptr failure;  // of the weights, which must not cost the result
  try {
    if (!line.save_weights.empty())
      save_weights(line.save_weights, session.trainer->parameters(), session.trainer->running(),
                   session.trainer->ops());
    if (!line.save_sparse.empty())
      save_sparse_weights(line.save_sparse, session.trainer->parameters());
  } catch (const Error&) {
    failure = std::current_exception();
  }
  const json result = make_result("train", session, &outcome);
  report(line, out, result,
         heading(session) + memory_table(result) + outcome_text(session, result, outcome));
  if (failure) std::rethrow_exception(failure);
  if (!snapshot.empty()) std::filesystem::remove(snapshot);
  run.remove_epoch_files();
  return result["quality"];
}

// "runs/a.json" and seed 2 give "runs/a_seed2.json".
std::string with_seed(const std::string& out, std::int64_t seed) {
  if (out.empty()) return out;
  std::filesystem::path path(out);
  const std::string name = concat(path.stem().string(), "_seed", seed, path.extension().string());
  return path.replace_filename(name).string();
}

constexpr int kInterrupted = 130;  // as shells report SIGINT

int train(const CommandLine& line) {
  if (line.seeds.empty()) return train_once(line, line.spec, line.out) ? 0 : kInterrupted;
  if (!line.save_weights.empty() || !line.save_sparse.empty() || !line.log_loss.empty())
    throw InputError(
        "--seeds trains several times: give --save-weights, --save-sparse and --log-loss to single "
        "runs");
  // A fault of the last seed is told now, not after hours.
  for (const std::int64_t seed : line.seeds) {
    RunSpec spec = line.spec;
    spec.seed = seed;
    validated(spec);
    check_writable(with_seed(line.out, seed));
  }
  std::map<std::string, std::vector<double>> figures;  // of all seeds
  for (const std::int64_t seed : line.seeds) {
    RunSpec spec = line.spec;
    spec.seed = seed;
    const std::optional<json> quality = train_once(line, spec, with_seed(line.out, seed));
    if (!quality) return kInterrupted;
    for (const auto& [key, factor] :
         {std::pair{"test_accuracy", 100.0}, {"perplexity", 1.0}, {"bleu", 1.0}})
      if (quality->contains(key) && (*quality)[key].is_number())
        figures[key].push_back(factor * (*quality)[key].get<double>());
  }
  for (const auto& [key, values] : figures) {
    const auto n = static_cast<double>(values.size());
    const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
    double squares = 0;
    for (const double value : values) squares += (value - mean) * (value - mean);
    const bool percent = key == "test_accuracy";
    std::fprintf(line.json ? stderr : stdout,
                 "%s over %zu seeds: mean %.2f%s, standard deviation %.2f%s\n",
                 percent ? "test accuracy" : key.c_str(), values.size(), mean, percent ? " %" : "",
                 n > 1 ? std::sqrt(squares / (n - 1)) : 0, percent ? " points" : "");
  }
  return 0;
}

int measure(const CommandLine& line) {
  check_writable(line.out);
  Session session = open_session(line.spec);
  start_from(line.init_weights, session, false);
  Trainer& trainer = *session.trainer;
  run_decisive(trainer, session.prediction, 0.001f);
  const json result = make_result("measure", session, nullptr);
  const std::string difference = prediction_difference(session.prediction, trainer);
  report(
      line, line.out, result,
      heading(session) + memory_table(result) + notes_text(result) +
          (difference.empty() ? "predicted and measured bytes are equal in every category\n" : ""));
  if (!difference.empty()) throw Error("prediction and measurement differ: " + difference);
  return 0;
}

// As in "5 steps, ...": of a result of timed steps.
std::string step_text(const Session& session, const TimedSteps& steps) {
  return concat(steps.seconds().size(), " steps: ", fixed(steps.terms_per_second(), 1), " ",
                session.task->unit(), "/s (median step ", fixed(1e3 * median(steps.seconds()), 1),
                " ms)\n");
}

int step(const CommandLine& line) {
  check_writable(line.out);
  Session session = open_session(line.spec);
  TimedSteps steps(session);
  const std::int64_t count = line.steps > 0 ? line.steps : timed_steps_of(session.spec);
  for (std::int64_t i = 0; i < count; ++i) steps.step();
  json result = make_result("step", session, nullptr);
  result["time"]["step_seconds"] = steps.seconds();
  result["time"]["step_seconds_median"] = median(steps.seconds());
  result["time"][concat(session.task->unit(), "_per_second")] = steps.terms_per_second();
  report(line, line.out, result,
         heading(session) + memory_table(result) + step_text(session, steps) + notes_text(result));
  const std::string difference = prediction_difference(session.prediction, *session.trainer);
  if (!difference.empty()) throw Error("prediction and measurement differ: " + difference);
  return 0;
}

int predict_command(const CommandLine& line) {
  check_writable(line.out);
  const Session session = predict_session(line.spec);
  const json result = make_result("predict", session, nullptr);
  report(line, line.out, result, heading(session) + memory_table(result) + notes_text(result));
  return 0;
}

int explain(const CommandLine& line) {
  const Session session = predict_session(line.spec);
  const std::vector<LiveBlock> blocks = live_at_peak(session.prediction.log);
  if (line.json) {
    json array = json::array();
    for (const LiveBlock& block : blocks)
      array.push_back(
          {{"bytes", block.bytes}, {"category", name_of(block.category)}, {"label", block.label}});
    std::cout << array.dump(2) << std::endl;
    return 0;
  }
  std::cout << heading(session) << blocks.size() << " blocks alive at the peak of "
            << session.prediction.training.peak_total << " bytes:\n";
  for (const LiveBlock& block : blocks)
    std::printf("  %15lld  %-16s %s\n", static_cast<long long>(block.bytes),
                name_of(block.category), block.label.c_str());
  return 0;
}

int timeline(const CommandLine& line) {
  check_writable(line.out);
  const Session session = predict_session(line.spec);
  json result = make_result("timeline", session, nullptr);
  result["timeline"] = timeline_json(instants_of_update(session));
  report(line, line.out, result,
         heading(session) + memory_table(result) + notes_text(result) +
             concat("one update is ", result["timeline"]["events"].get<std::int64_t>(),
                    " events of the ledger; a result file (--out, --json) has ",
                    result["timeline"]["points"].size(), " instants of them\n"));
  return 0;
}

// The flags that make a spec out of the plan's base: the techniques' keys that differ from off.
std::string technique_flags(const RunSpec& spec) {
  RunSpec plain;
  plain.model = spec.model;
  const json keys = to_json(spec), off = to_json(validated(plain));
  std::string flags;
  for (const char* key : {"precision", "sparsity", "microbatch", "microbatch_tokens", "checkpoint",
                          "conv_impl", "loss_chunk"})
    if (keys[key] != off[key])
      flags += concat(" ", SpecKey{key, {}, {}}.flag(), " ",
                      keys[key].is_string() ? keys[key].get<std::string>() : keys[key].dump());
  return flags.empty() ? " (every technique off)" : flags;
}

int plan(const CommandLine& line) {
  const std::int64_t budget = line.spec.memory_budget;
  if (budget <= 0) throw InputError("plan needs --memory-budget, as in 8MiB");
  const std::vector<PlannedRun> runs = plan_for_budget(line.spec, budget);
  if (runs.front().peak_bytes > budget)
    throw InputError(concat("nothing fits ", budget, " bytes; the smallest peak found is ",
                            runs.front().peak_bytes, " bytes:", technique_flags(runs[0].spec)));
  if (line.json) {
    json array = json::array();
    for (const PlannedRun& run : runs)
      array.push_back({{"spec", to_json(run.spec)},
                       {"peak_bytes", run.peak_bytes},
                       {"relative_work", run.relative_work},
                       {"accuracy_risk_points", run.accuracy_risk}});
    std::cout << array.dump(2) << std::endl;
    return 0;
  }
  std::cout << "what fits " << budget << " bytes, lowest risk first; nothing listed is beaten in "
            << "both work and risk\n       peak bytes   work   risk in points (ours, rough)\n";
  for (const PlannedRun& run : runs)
    std::printf("  %15lld  %5.3f  %5.2f %s\n", static_cast<long long>(run.peak_bytes),
                run.relative_work, run.accuracy_risk, technique_flags(run.spec).c_str());
  return 0;
}

int evaluate(const CommandLine& line) {
  if (line.weights.empty()) throw InputError("evaluate needs --weights FILE, a safetensors file");
  check_writable(line.out);
  Session session = open_session(line.spec);
  start_from(line.weights, session, true);
  const Totals totals = evaluate_all(*session.trainer);
  json result = make_result("evaluate", session, nullptr);
  const json quality = session.task->quality(totals);
  for (const char* key : {"test_accuracy", "perplexity"})
    if (quality.contains(key)) result["quality"][key] = quality[key];
  const json final_quality = session.task->final_quality(*session.trainer);
  result["quality"].update(final_quality);
  report(line, line.out, result,
         heading(session) + quality_text(*session.task, quality, final_quality) + "\n");
  return 0;
}

}  // namespace

int run_command(const CommandLine& line) {
  if (line.help) {
    std::cout << usage();
    return 0;
  }
  const std::pair<const char*, int (*)(const CommandLine&)> commands[] = {
      {"list", list},
      {"train", train},
      {"measure", measure},
      {"step", step},
      {"predict", predict_command},
      {"explain", explain},
      {"timeline", timeline},
      {"evaluate", evaluate},
      {"plan", plan},
      {"bleu", bleu_command},
      {"suite run", suite_run_command},
      {"suite summary", suite_summary_command},
      {"compare", compare_command},
      {"bench", run_benchmarks}};
  for (const auto& [name, run] : commands)
    if (line.command == name) {
      const int code = run(line);
      // Both streams share one buffer; what it could not deliver must not pass for success.
      if (std::fflush(stdout) != 0 || std::ferror(stdout) || !std::cout)
        throw Error("cannot write to standard output; check where it leads (a full disk?)");
      return code;
    }
  throw Error(concat("command '", line.command, "' has no implementation"));
}

}  // namespace memfloor

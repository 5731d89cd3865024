#include "suite/benchmarks.h"

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <regex>

#include "core/error.h"
#include "suite/cases.h"
#include "suite/op_benchmarks.h"
#include "suite/result.h"
#include "suite/timed_steps.h"
#include "suite/training_run.h"

namespace memfloor {
namespace {

using nlohmann::json;

struct Benchmark {
  std::string name;
  std::string impossible;  // a sentence; empty: it can run
  std::int64_t iterations;
  std::function<std::int64_t(benchmark::State&)> run;  // returns the ledger's peak, bytes
};

// Thrown by a training that Ctrl-C ended.
class Interrupted : public Error {
 public:
  Interrupted() : Error("interrupted") {}
};

// Zero is left out: Google Benchmark divides the spread of repetitions by the mean, and its JSON
// would hold a bare NaN, which strict parsers refuse.
void set_counter(benchmark::State& state, const std::string& name, double value) {
  if (std::isfinite(value) && value != 0) state.counters[name] = value;
}

// Returns the peak of training.
std::int64_t report_bytes(benchmark::State& state, const MemoryRecord& training,
                          const MemoryRecord& evaluation) {
  const auto bytes = [&](const std::string& name, std::int64_t value) {
    set_counter(state, name + "_bytes", static_cast<double>(value));
  };
  bytes("peak_total", training.peak_total);
  bytes("paper_total", training.paper_total());
  bytes("evaluation_peak", evaluation.peak_total);
  for (int c = 0; c < kCategoryCount; ++c)
    bytes(name_of(static_cast<Category>(c)), training.category_peak[c]);
  return training.peak_total;
}

// ---- the three kinds

std::int64_t memory_case(benchmark::State& state, const RunSpec& spec) {
  Session session;
  for (auto _ : state) state.SetIterationTime(seconds_of([&] { session = predict_session(spec); }));
  return report_bytes(state, session.prediction.training, session.prediction.evaluation);
}

std::int64_t step_case(benchmark::State& state, const RunSpec& spec) {
  Session session = open_session(spec);
  TimedSteps steps(session);
  for (auto _ : state) state.SetIterationTime(steps.step());
  set_counter(state, concat(session.task->unit(), "_per_second_median"), steps.terms_per_second());
  state.SetItemsProcessed(steps.terms());
  const Trainer& trainer = *session.trainer;
  return report_bytes(state, trainer.training_record, trainer.evaluation_record);
}

// Where a training keeps the weights that it averages at its end, as `train --out` does beside OUT.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = std::filesystem::temp_directory_path() / "memfloor-XXXXXX";
    if (mkdtemp(name.data()) == nullptr)
      throw InputError(concat("cannot make a folder in ", std::filesystem::temp_directory_path(),
                              "; check TMPDIR and the disk"));
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string file(const char* name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

std::int64_t train_case(benchmark::State& state, const RunSpec& spec) {
  Session session = open_session(spec);
  const ScratchFolder scratch;
  TrainingOptions options;
  options.snapshot_path = scratch.file("snapshot");
  TrainingOutcome outcome;
  for (auto _ : state) {
    TrainingRun run(session, options);
    state.SetIterationTime(seconds_of([&] { outcome = run.run(); }));
    if (outcome.interrupted) throw Interrupted();
  }
  const json quality = make_result("train", session, &outcome)["quality"];
  for (const auto& [key, value] : quality.items())
    if (value.is_number()) set_counter(state, key, value.get<double>());
  set_counter(state, "step_seconds_median", outcome.step_seconds_median);
  set_counter(state, concat(session.task->unit(), "_per_second_median"), outcome.terms_per_second);
  const Trainer& trainer = *session.trainer;
  return report_bytes(state, trainer.training_record, trainer.evaluation_record);
}

// ---- all of them under Google Benchmark

std::vector<Benchmark> all_benchmarks(const CommandLine& line) {
  std::vector<Benchmark> all;
  for (const Case& c : suite_cases(line.spec, line.models)) {
    auto* const body = c.kind == CaseKind::memory ? memory_case
                       : c.kind == CaseKind::step ? step_case
                                                  : train_case;
    all.push_back({c.name, c.impossible, c.kind == CaseKind::step ? timed_steps_of(c.spec) : 1,
                   [body, spec = c.spec](benchmark::State& state) { return body(state, spec); }});
  }
  for (const std::string& model : line.models) {
    RunSpec base = line.spec;
    base.model = model;
    for (OpBenchmark& op : op_benchmarks(base))
      all.push_back({op.name, op.impossible, OpBenchmark::kIterations, std::move(op.run)});
  }
  return all;
}

// After timing a case Google Benchmark runs it once more, up to 16 iterations, for this hook. The
// ledger counts at no cost while the case is timed, so that nothing has to run again: see
// run_one().
class LedgerHook : public benchmark::MemoryManager {
 public:
  void Start() override { asking_ = true; }
  void Stop(Result& result) override {
    result.max_bytes_used = peak_bytes_;
    asking_ = false;
  }
  // Pure in Google Benchmark 1.7, which calls the other; newer versions do not have it.
  void Stop(Result* result) { Stop(*result); }

  bool asking() const { return asking_; }
  void set_peak(std::int64_t bytes) { peak_bytes_ = bytes; }

 private:
  bool asking_ = false;
  std::int64_t peak_bytes_ = 0;  // of the case that was timed last
};

struct Outcome {
  int failed = 0;
  bool interrupted = false;
};

// Where cases are repeated there must be no hook: Google Benchmark (1.7, and still the newest)
// keeps pointers to the hook's answers in a vector that grows. The counters have the bytes all the
// same.
bool repeats(const std::vector<std::string>& benchmark_flags) {
  constexpr std::string_view kFlag = "--benchmark_repetitions=";
  const char* variable = std::getenv("BENCHMARK_REPETITIONS");  // Google Benchmark's default
  std::string times = variable ? variable : "1";
  for (const std::string& flag : benchmark_flags)
    if (flag.starts_with(kFlag)) times = flag.substr(kFlag.size());
  return times != "1";
}

// Since version 1.8 a case may be skipped without an error.
template <class State>
void skip(State& state, const std::string& sentence) {
  if constexpr (requires { state.SkipWithMessage(sentence); })
    state.SkipWithMessage(sentence);
  else
    state.SkipWithError(("impossible: " + sentence).c_str());
}

void run_one(benchmark::State& state, const Benchmark& b, LedgerHook& hook, Outcome& outcome) {
  if (hook.asking()) {
    for (auto _ : state) {
    }
    return;
  }
  hook.set_peak(0);
  if (!b.impossible.empty()) return skip(state, b.impossible);
  if (outcome.interrupted) return state.SkipWithError("not run: interrupted");
  try {
    hook.set_peak(b.run(state));
  } catch (const Interrupted& interrupted) {
    outcome.interrupted = true;
    state.SkipWithError(interrupted.what());
  } catch (const std::exception& error) {
    ++outcome.failed;
    state.SkipWithError(concat("failed: ", error.what()).c_str());
  }
}

// Google Benchmark would tell of these in several lines of its own.
void check_filter(const std::vector<Benchmark>& all) {
  std::string filter = benchmark::GetBenchmarkFilter();
  if (filter.empty() || filter == "all") return;
  const bool inverted = filter[0] == '-';
  std::regex expression;
  try {
    expression.assign(filter.substr(inverted ? 1 : 0), std::regex::extended);
  } catch (const std::regex_error& error) {
    throw InputError(concat("--benchmark_filter '", filter,
                            "' is no regular expression: ", error.what(), "; mend it"));
  }
  for (const Benchmark& b : all) {
    const std::string name = concat(b.name, "/iterations:", b.iterations, "/manual_time");
    if (std::regex_search(name, expression) != inverted) return;
  }
  throw InputError(concat("--benchmark_filter '", filter,
                          "' matches no benchmark; see the names with: memfloor list"));
}

// Google Benchmark takes its flags, the program's name first, which it keeps a pointer to: it must
// live as long as benchmarks run. Throws InputError for what it does not know.
void initialize(std::vector<std::string>& flags) {
  std::vector<char*> pointers;
  for (std::string& flag : flags) pointers.push_back(flag.data());
  int count = static_cast<int>(pointers.size());
  // It calls this, and then exit(), for a value it does not know.
  benchmark::Initialize(&count, pointers.data(), [] {
    throw InputError("a --benchmark_* flag has a value that Google Benchmark does not know");
  });
  if (count > 1)
    throw InputError(concat("'", pointers[1], "' is not a flag of Google Benchmark, or its value ",
                            "is of the wrong type; see the user guide of Google Benchmark"));
}

}  // namespace

std::vector<std::string> benchmark_names(const CommandLine& line) {
  std::vector<std::string> names;
  for (const Benchmark& b : all_benchmarks(line)) names.push_back(b.name);
  return names;
}

int run_benchmarks(const CommandLine& line) {
  std::vector<std::string> flags{"memfloor"};
  flags.insert(flags.end(), line.benchmark_flags.begin(), line.benchmark_flags.end());
  initialize(flags);
  const std::vector<Benchmark> all = all_benchmarks(line);
  check_filter(all);
  LedgerHook hook;
  Outcome outcome;
  for (const Benchmark& b : all)
    benchmark::RegisterBenchmark(b.name.c_str(),
                                 [&](benchmark::State& state) { run_one(state, b, hook, outcome); })
        ->Iterations(b.iterations)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  if (!repeats(line.benchmark_flags)) benchmark::RegisterMemoryManager(&hook);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::RegisterMemoryManager(nullptr);
  benchmark::Shutdown();
  return outcome.interrupted ? 130 : outcome.failed > 0 ? 1 : 0;
}

}  // namespace memfloor

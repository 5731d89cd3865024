#include "suite/benchmarks.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <regex>
#include <set>

#include "core/error.h"
#include "suite/presets.h"
#include "suite/session.h"
#include "techniques/registry.h"

namespace memfloor {
namespace {

struct Case {
  std::string name;
  std::function<void(benchmark::State&)> run;
  int iterations = 1;
};

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void report_bytes(benchmark::State& state, const MemoryRecord& record) {
  state.counters["peak_total_bytes"] = static_cast<double>(record.peak_total);
  state.counters["paper_total_bytes"] = static_cast<double>(record.paper_total());
  for (int c = 0; c < kCategoryCount; ++c)
    state.counters[std::string(name_of(static_cast<Category>(c))) + "_bytes"] =
        static_cast<double>(record.category_peak[c]);
}

// ---- whole runs

void memory_case(benchmark::State& state, const RunSpec& spec) {
  for (auto _ : state) {
    Session session;
    state.SetIterationTime(seconds_of([&] { session = predict_session(spec); }));
    report_bytes(state, session.prediction.training);
  }
}

void step_case(benchmark::State& state, const RunSpec& spec) {
  Session session = open_session(spec);
  std::int64_t step = 0, terms = 0;
  const auto train = [&] {
    terms = session.trainer->train(session.task->minibatch(step++), 0.01f).terms;
  };
  for (int warm_up = 0; warm_up < 2; ++warm_up) train();
  std::vector<double> seconds;
  for (auto _ : state) {
    seconds.push_back(seconds_of(train));
    state.SetIterationTime(seconds.back());
  }
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  state.counters[concat(session.task->unit(), "_per_second_median")] =
      static_cast<double>(terms) / seconds[seconds.size() / 2];
  state.SetItemsProcessed(state.iterations() * terms);
  report_bytes(state, session.trainer->training_record);
}

// ---- the ops of one step, by shape

struct LayerShape {
  std::int64_t size, in, out;
  int kernel, stride, times;
};
// Of WideResNet-28-2, with how often each occurs.
constexpr LayerShape kShapes[] = {
    {32, 3, 16, 3, 1, 1},  {32, 16, 32, 3, 1, 1},  {32, 32, 32, 3, 1, 7},  {32, 32, 64, 3, 2, 1},
    {16, 64, 64, 3, 1, 7}, {16, 64, 128, 3, 2, 1}, {8, 128, 128, 3, 1, 7}, {32, 16, 32, 1, 1, 1},
    {32, 32, 64, 1, 2, 1}, {16, 64, 128, 1, 2, 1}};
struct NormShape {
  std::int64_t size, channels;
  int times;
};
constexpr NormShape kNormShapes[] = {{32, 16, 1}, {32, 32, 8}, {16, 64, 8}, {8, 128, 8}};

// Times every iteration of an op that a step runs `times` times; mean seconds.
double time_op(benchmark::State& state, const std::function<void()>& op, int times) {
  op();
  double seconds = 0;
  for (auto _ : state) {
    const double once = seconds_of(op);
    seconds += once;
    state.SetIterationTime(once);
  }
  seconds /= static_cast<double>(state.iterations());
  state.counters["ms_in_a_step"] = 1e3 * seconds * times;
  return seconds;
}

Tensor zeros(Ledger& ledger, TensorOps& ops, std::int64_t elements, Dtype dtype) {
  Tensor tensor(ledger, {elements}, dtype, Category::workspace, "operand");
  ops.zero(tensor.raw(), tensor.bytes());
  return tensor;
}

void convolution_case(benchmark::State& state, const RunSpec& spec, const LayerShape& s,
                      int direction) {
  const auto backend = make_cpu_backend(static_cast<int>(spec.threads));
  Ledger ledger(heap_memory());
  TensorOps& ops = backend->tensor_ops();
  const Dtype dtype = make_precision(spec.precision).activation;
  const ConvolutionDescriptor d{spec.batch_size, s.size,   s.size,   s.in,
                                s.out,           s.kernel, s.stride, dtype};
  const Convolution& op = backend->convolution(d);
  const ConvolutionPlan& plan = op.plan();
  const Tensor x = zeros(ledger, ops, d.images * d.height * d.width * d.channels_in, dtype);
  const Tensor y =
      zeros(ledger, ops, d.images * d.out_height() * d.out_width() * d.channels_out, dtype);
  const WeightLayout& layout = direction == 1 ? plan.backward_weights : plan.forward_weights;
  const Tensor w = zeros(ledger, ops, layout.elements, layout.dtype);
  const Tensor dw = zeros(ledger, ops, plan.gradient.elements, Dtype::f32);
  const Tensor statistics = zeros(ledger, ops, d.images * 2 * d.channels_out, Dtype::f32);
  // As in a step: what made x was a batch norm, whose backward begins here.
  const Tensor norm_input = zeros(ledger, ops, x.elements(), dtype),
               norm_output = zeros(ledger, ops, x.elements(), dtype);
  const Tensor mean = zeros(ledger, ops, d.channels_in, Dtype::f32);
  const Tensor sums = zeros(ledger, ops, d.images * 2 * d.channels_in, Dtype::f32);
  const MaskedGradientSums masked{norm_input.raw(), norm_output.raw(), mean.data<float>(),
                                  sums.data<float>()};
  const std::int64_t scratches[] = {plan.forward_scratch, plan.backward_data_scratch,
                                    plan.backward_weights_scratch};
  const Block scratch = ledger.allocate(scratches[direction], Category::workspace, "scratch");
  const auto run = [&] {
    if (direction == 0)
      op.forward(x.raw(), w.raw(), nullptr, y.raw(), statistics.data<float>(), scratch.data());
    else if (direction == 1)
      op.backward_data(y.raw(), w.raw(), x.raw(), false, &masked, scratch.data());
    else
      op.backward_weights(x.raw(), y.raw(), dw.data<float>(), scratch.data());
  };
  const double seconds = time_op(state, run, s.times);
  state.counters["GFLOP/s"] = 2e-9 * static_cast<double>(plan.multiply_adds) / seconds;
  state.counters["scratch_bytes"] = static_cast<double>(scratches[direction]);
}

void norm_case(benchmark::State& state, const RunSpec& spec, const NormShape& s, int direction) {
  const auto backend = make_cpu_backend(static_cast<int>(spec.threads));
  Ledger ledger(heap_memory());
  TensorOps& ops = backend->tensor_ops();
  const Dtype dtype = make_precision(spec.precision).activation;
  const BatchNormRelu& op =
      backend->batch_norm_relu({spec.batch_size, s.size, s.size, s.channels, dtype});
  const std::int64_t elements = spec.batch_size * s.size * s.size * s.channels;
  const Tensor x = zeros(ledger, ops, elements, dtype), y = zeros(ledger, ops, elements, dtype),
               dy = zeros(ledger, ops, elements, dtype);
  const Tensor channel = zeros(ledger, ops, 6 * s.channels, Dtype::f32);
  const Tensor sums = zeros(ledger, ops, spec.batch_size * 2 * s.channels, Dtype::f32);
  const Block scratch = ledger.allocate(op.plan().backward_scratch, Category::workspace, "scratch");
  float* c = channel.data<float>();
  const auto run = [&] {
    if (direction == 0)
      op.forward(x.raw(), c, c + s.channels, c + 2 * s.channels, c + 3 * s.channels, y.raw());
    else
      op.backward(x.raw(), dy.raw(), c, c + s.channels, c + 2 * s.channels, sums.data<float>(),
                  dy.raw(), false, c + 4 * s.channels, c + 5 * s.channels, scratch.data());
  };
  time_op(state, run, s.times);
}

// Every precision alone, and every on/off combination of the techniques.
std::vector<RunSpec> run_specs(const RunSpec& base) {
  std::vector<RunSpec> specs = technique_combinations(base);
  for (const std::string& precision : precision_names()) {
    specs.push_back(base);
    specs.back().precision = precision;
  }
  return specs;
}

void pattern_case(benchmark::State& state, const RunSpec& spec) {
  Session session = open_session(spec);
  time_op(
      state, [&] { session.trainer->move_pattern(); }, 1);
}

std::vector<Case> cases(const RunSpec& base) {
  std::vector<Case> all;
  std::set<std::string> names;
  for (const RunSpec& given : run_specs(base)) {
    const RunSpec spec = validated(given);
    const std::string name = case_name(spec);
    if (!names.insert(name).second) continue;
    all.push_back({"memory/" + name, [spec](benchmark::State& s) { memory_case(s, spec); }, 1});
    const int steps = family_of(spec.model) == ModelFamily::wide_resnet ? 20 : 5;  // a second each
    all.push_back({"step/" + name, [spec](benchmark::State& s) { step_case(s, spec); }, steps});
  }
  RunSpec sparse = base;
  if (sparse.sparsity == 0) sparse.sparsity = 0.8;
  all.push_back({concat("op/move_pattern/sparsity=", sparse.sparsity,
                        "/sparse_method=", sparse.sparse_method),
                 [sparse](benchmark::State& s) { pattern_case(s, sparse); }, 20});
  if (family_of(base.model) != ModelFamily::wide_resnet) return all;  // the ops below are its
  for (const std::string& precision : precision_names()) {
    RunSpec spec = base;
    spec.precision = precision;
    // Ops see activations: the modes with FP32 weights have each format once.
    if (make_precision(precision).weight != Dtype::f32) continue;
    const char* const directions[] = {"forward", "backward_data", "backward_weights"};
    for (const LayerShape& s : kShapes)
      for (int direction = 0; direction < 3; ++direction) {
        if (direction == 1 && s.in == 3) continue;  // images have no gradient
        all.push_back({concat("op/convolution.", directions[direction], "/precision=", precision,
                              "/images=", spec.batch_size, "/size=", s.size, "/in=", s.in,
                              "/out=", s.out, "/kernel=", s.kernel, "/stride=", s.stride),
                       [spec, s, direction](benchmark::State& state) {
                         convolution_case(state, spec, s, direction);
                       },
                       20});
      }
    for (const NormShape& s : kNormShapes)
      for (int direction = 0; direction < 2; ++direction)
        all.push_back({concat("op/batch_norm_relu.", direction ? "backward" : "forward",
                              "/precision=", precision, "/images=", spec.batch_size,
                              "/size=", s.size, "/channels=", s.channels),
                       [spec, s, direction](benchmark::State& state) {
                         norm_case(state, spec, s, direction);
                       },
                       20});
  }
  return all;
}

// Google Benchmark would tell of these in several lines of its own.
void check_filter(const std::vector<Case>& all) {
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
  for (const Case& c : all) {
    const std::string name = concat(c.name, "/iterations:", c.iterations, "/manual_time");
    if (std::regex_search(name, expression) != inverted) return;
  }
  throw InputError(concat("--benchmark_filter '", filter,
                          "' matches no benchmark; see the names with: memfloor list"));
}

}  // namespace

std::vector<std::string> benchmark_names() {
  std::vector<std::string> names;
  for (const Case& c : cases(validated(RunSpec{}))) names.push_back(c.name);
  return names;
}

int run_benchmarks(const CommandLine& line) {
  std::vector<std::string> flags{"memfloor"};
  flags.insert(flags.end(), line.benchmark_flags.begin(), line.benchmark_flags.end());
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
  const std::vector<Case> all = cases(validated(line.spec));
  check_filter(all);
  for (const Case& c : all)
    benchmark::RegisterBenchmark(c.name.c_str(), c.run)
        ->Iterations(c.iterations)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace memfloor

#include "suite/op_benchmarks.h"

#include "core/error.h"
#include "suite/models.h"
#include "suite/session.h"
#include "suite/timed_steps.h"
#include "techniques/registry.h"

namespace memfloor {
namespace {

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

std::int64_t convolution_case(benchmark::State& state, const RunSpec& spec, const LayerShape& s,
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
  // Zero counters have no relative spread: see the counters of whole runs.
  if (scratches[direction] > 0)
    state.counters["scratch_bytes"] = static_cast<double>(scratches[direction]);
  return ledger.live_total();
}

std::int64_t norm_case(benchmark::State& state, const RunSpec& spec, const NormShape& s,
                       int direction) {
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
  return ledger.live_total();
}

std::int64_t pattern_case(benchmark::State& state, const RunSpec& spec) {
  Session session = open_session(spec);
  time_op(
      state, [&] { session.trainer->move_pattern(); }, 1);
  return session.trainer->ledger().live_total();
}

void add_convolutions(std::vector<OpBenchmark>& all, const RunSpec& spec) {
  const char* const directions[] = {"forward", "backward_data", "backward_weights"};
  for (const LayerShape& s : kShapes)
    for (int direction = 0; direction < 3; ++direction) {
      if (direction == 1 && s.in == 3) continue;  // images have no gradient
      all.push_back({concat("op/convolution.", directions[direction], "/precision=", spec.precision,
                            "/images=", spec.batch_size, "/size=", s.size, "/in=", s.in,
                            "/out=", s.out, "/kernel=", s.kernel, "/stride=", s.stride),
                     "", [spec, s, direction](benchmark::State& state) {
                       return convolution_case(state, spec, s, direction);
                     }});
    }
}

void add_norms(std::vector<OpBenchmark>& all, const RunSpec& spec) {
  for (const NormShape& s : kNormShapes)
    for (int direction = 0; direction < 2; ++direction)
      all.push_back({concat("op/batch_norm_relu.", direction ? "backward" : "forward",
                            "/precision=", spec.precision, "/images=", spec.batch_size,
                            "/size=", s.size, "/channels=", s.channels),
                     "", [spec, s, direction](benchmark::State& state) {
                       return norm_case(state, spec, s, direction);
                     }});
}

}  // namespace

std::vector<OpBenchmark> op_benchmarks(const RunSpec& base) {
  RunSpec spec = base;
  std::string impossible;
  try {
    spec = validated(base);
  } catch (const InputError& error) {
    impossible = error.what();
    if (spec.batch_size == 0) spec.batch_size = 100;  // as it would have been
  }
  std::vector<OpBenchmark> all;
  RunSpec sparse = spec;
  if (sparse.sparsity == 0) sparse.sparsity = 0.8;
  all.push_back({concat("op/move_pattern/model=", sparse.model, "/sparsity=", sparse.sparsity,
                        "/sparse_method=", sparse.sparse_method),
                 "", [sparse](benchmark::State& state) { return pattern_case(state, sparse); }});
  if (family_of(spec.model) == ModelFamily::wide_resnet)
    for (const std::string& precision : precision_names()) {
      // Ops see activations: the modes with FP32 weights have each format once.
      if (make_precision(precision).weight != Dtype::f32) continue;
      RunSpec of_precision = spec;
      of_precision.precision = precision;
      add_convolutions(all, of_precision);
      add_norms(all, of_precision);
    }
  for (OpBenchmark& op : all) op.impossible = impossible;
  return all;
}

}  // namespace memfloor

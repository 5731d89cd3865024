#include "tests/reference_net.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "techniques/registry.h"

namespace memfloor::testing {
namespace {

// Stored data is aligned only as the writer saw fit.
template <class T>
std::vector<T> values_of(const TensorView& view, StoredType type) {
  MEMFLOOR_CHECK(view.type == type, "a dump holds another type than its README says");
  std::vector<T> values(static_cast<std::size_t>(view.elements()));
  std::memcpy(values.data(), view.data, static_cast<std::size_t>(view.bytes));
  return values;
}

// (n, rows, columns) -> (n, columns, rows)
std::vector<float> swapped(const std::vector<float>& values, std::int64_t n, std::int64_t rows) {
  const std::int64_t columns = static_cast<std::int64_t>(values.size()) / (n * rows);
  std::vector<float> result(values.size());
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c)
        result[(i * columns + c) * rows + r] = values[(i * rows + r) * columns + c];
  return result;
}

// The elements of `whole` that an answer has.
std::vector<double> stored_elements(const Answer& answer, const std::vector<float>& whole) {
  MEMFLOOR_CHECK(static_cast<std::int64_t>(whole.size()) == answer.elements, "a tensor of ",
                 whole.size(), " elements is compared with an answer of ", answer.elements);
  if (answer.values.size() == whole.size()) return {whole.begin(), whole.end()};
  std::vector<double> sample;
  for (std::size_t i = 0; i < kSampleSize; ++i)
    sample.push_back(whole[sample_position(i, whole.size())]);
  return sample;
}

}  // namespace

double Answer::distance_of(const std::vector<float>& whole) const {
  const std::vector<double> ours = stored_elements(*this, whole);
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    error += (ours[i] - values[i]) * (ours[i] - values[i]);
    norm += values[i] * values[i];
  }
  return std::sqrt(error / norm);
}

double Answer::largest_difference(const std::vector<float>& whole) const {
  const std::vector<double> ours = stored_elements(*this, whole);
  double error = 0, largest = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    // Not std::max: a NaN must count as a difference.
    const double difference = std::abs(ours[i] - values[i]);
    if (!(difference <= error)) error = difference;
    largest = std::max(largest, std::abs(values[i]));
  }
  return error / largest;
}

Dump::Dump(const std::string& file, std::string prefix)
    : file_(SafetensorsFile::open(MEMFLOOR_SOURCE_DIR "/tests/data/" + file + ".safetensors")),
      prefix_(std::move(prefix)) {}

std::vector<std::int64_t> Dump::integers(const std::string& name) const {
  return values_of<std::int64_t>(file_.get(prefix_ + name), StoredType::i64);
}
std::vector<double> Dump::doubles(const std::string& name) const {
  return values_of<double>(file_.get(prefix_ + name), StoredType::f64);
}
std::vector<std::int32_t> Dump::labels(const std::string& name) const {
  const std::vector<std::int64_t> labels = integers(name);
  return {labels.begin(), labels.end()};
}
std::vector<std::int64_t> Dump::shape(const std::string& name) const {
  return integers(name + ".shape");
}

std::vector<float> Dump::input(const std::string& name) const {
  if (const TensorView* stored = file_.find(prefix_ + name + ".values"))
    return values_of<float>(*stored, StoredType::f32);
  std::size_t count = 1;
  for (const std::int64_t extent : shape(name)) count *= static_cast<std::size_t>(extent);
  return filled(Fill::from_row(doubles(name + ".fill").data()), count);
}

Answer Dump::answer(const std::string& name, std::int64_t elements) const {
  Answer answer;
  answer.values = doubles(name);
  answer.elements = elements > 0 ? elements : static_cast<std::int64_t>(answer.values.size());
  answer.torch_distance = doubles(name + ".distance")[2];
  return answer;
}

std::vector<float> channels_last(const std::vector<float>& values, std::int64_t n, std::int64_t c) {
  return swapped(values, n, c);
}
std::vector<float> channels_first(const std::vector<float>& values, std::int64_t n,
                                  std::int64_t c) {
  return swapped(values, n, static_cast<std::int64_t>(values.size()) / (n * c));
}

void load_start(const Dump& dump, ParameterStore& parameters, RunningStatistics& running) {
  parameters.write_dense([&](ParameterStore::Handle h, float* to) {
    const ParameterSpec& spec = parameters.specs()[static_cast<std::size_t>(h)];
    MEMFLOOR_CHECK(dump.shape(spec.name) == spec.export_shape, "the dump has another '", spec.name,
                   "'");
    const std::vector<float> ohwi = channels_last(dump.input(spec.name), spec.outputs, spec.inputs);
    std::copy(ohwi.begin(), ohwi.end(), to);
  });
  for (const RunningStatistics::Entry& entry : running.entries()) {
    float* to = running.slab().data<float>() + entry.offset;
    for (const char* what : {".running_mean", ".running_var"}) {
      const std::vector<float> values = dump.input(entry.name + what);
      to = std::copy(values.begin(), values.end(), to);
    }
  }
}

std::vector<float> weight_of(const ParameterStore& parameters, int handle) {
  const ParameterSpec& spec = parameters.specs()[static_cast<std::size_t>(handle)];
  std::vector<float> dense(static_cast<std::size_t>(spec.elements()));
  parameters.read_dense(handle, dense.data());
  return channels_first(dense, spec.outputs, spec.inputs);
}

std::vector<float> gradient_of(const ParameterStore& parameters, int handle) {
  const ParameterSpec& spec = parameters.specs()[static_cast<std::size_t>(handle)];
  std::vector<float> dense(static_cast<std::size_t>(spec.elements()));
  parameters.read_dense_gradient(handle, dense.data());
  return channels_first(dense, spec.outputs, spec.inputs);
}

std::vector<float> running_of(RunningStatistics& running, const std::string& name) {
  const std::size_t dot = name.rfind('.');
  for (const RunningStatistics::Entry& entry : running.entries())
    if (entry.name == name.substr(0, dot)) {
      const float* mean = running.slab().data<float>() + entry.offset;
      const float* from = name.substr(dot) == ".running_mean" ? mean : mean + entry.channels;
      return {from, from + entry.channels};
    }
  throw Error(concat("there are no running statistics '", name, "'"));
}

std::vector<std::string> running_names(const RunningStatistics& running) {
  std::vector<std::string> names;
  for (const RunningStatistics::Entry& entry : running.entries()) {
    names.push_back(entry.name + ".running_mean");
    names.push_back(entry.name + ".running_var");
  }
  return names;
}

ReferenceNet::ReferenceNet(const Dump& dump, const std::string& model, int image_pixels,
                           const std::string& precision, int threads) {
  RunSpec spec;
  spec.model = model, spec.precision = precision;
  spec.threads = threads;
  spec = validated(spec);
  const ImageFormat format{image_pixels, image_pixels, 3, 10};
  task = std::make_unique<ImageTask>(spec, format, DataSize{}, nullptr);
  config = task->config();
  backend = make_cpu_backend(threads);
  trainer = std::make_unique<Trainer>(spec, *task, *backend, heap_memory());
  trainer->initialize();
  load_start(dump, trainer->parameters(), trainer->running());
}

Totals ReferenceNet::forward_backward(const std::vector<float>& images,
                                      const std::vector<std::int32_t>& labels) {
  const auto count = static_cast<std::int64_t>(labels.size());
  logits.resize(labels.size() * static_cast<std::size_t>(config.classes));
  return forward_backward_images(*trainer,
                                 channels_last(images, count, config.image_channels).data(),
                                 labels.data(), count, logits.data());
}

std::vector<float> ReferenceNet::evaluate(const std::vector<float>& images) {
  const WideResNet& model = dynamic_cast<const ImageNetwork&>(trainer->network()).model();
  const PrecisionPolicy precision = make_precision(trainer->spec().precision);
  const KeepAll retention;
  Context context{*backend,
                  trainer->ledger(),
                  trainer->parameters(),
                  trainer->running(),
                  precision,
                  retention,
                  nullptr,
                  Pass::evaluation,
                  {}};
  const std::int64_t h = config.image_height, w = config.image_width, c = config.image_channels;
  const auto count = static_cast<std::int64_t>(images.size()) / (h * w * c);
  Value input = context.make_value({count, h, w, c}, Dtype::f32, "images", false);
  const std::vector<float> nhwc = channels_last(images, count, c);
  std::copy(nhwc.begin(), nhwc.end(), input->data.data<float>());
  const Value output = model.forward(context, std::move(input));
  const float* from = output->data.data<float>();
  return {from, from + output->data.elements()};
}

Totals forward_backward_images(Trainer& trainer, const float* images, const std::int32_t* labels,
                               std::int64_t count, float* logits) {
  const auto& task = dynamic_cast<const ImageTask&>(trainer.task());
  const WideResNet& model = dynamic_cast<const ImageNetwork&>(trainer.network()).model();
  const WideResNetConfig& c = task.config();
  return trainer.forward_backward(count, [&](Context& ctx, LossSums* sums) {
    const Shape shape{count, c.image_height, c.image_width, c.image_channels};
    const Value input = ctx.make_value(shape, ctx.precision.activation, "images", false);
    from_f32(images, ctx.precision.activation, input->data.raw(), shape.elements());
    Value output = model.forward(ctx, input);
    std::copy_n(output->data.data<float>(), output->data.elements(), logits);
    softmax_cross_entropy(ctx, std::move(output), labels, sums, 1 / static_cast<float>(count));
  });
}

Session small_session(const RunSpec& spec, std::int64_t train, std::int64_t test) {
  const ImageFormat format{16, 16, 3, 10};
  Session session;
  session.spec = validated(spec);
  session.task = std::make_shared<ImageTask>(
      session.spec, format, DataSize{train, test},
      make_synthetic_images(static_cast<std::uint32_t>(spec.seed), format, train, test));
  session.backend = make_cpu_backend(static_cast<int>(session.spec.threads));
  session.prediction = predict(session.spec, *session.task, session.backend);
  session.trainer = std::make_unique<Trainer>(session.spec, *session.task, *session.backend,
                                              arena_memory(session.prediction.layout));
  session.trainer->initialize();
  return session;
}

RunSpec small_spec(const std::string& precision, int threads) {
  RunSpec spec;
  spec.model = "wrn10_1", spec.precision = precision;
  spec.batch_size = 20, spec.microbatch = 7;
  spec.threads = threads;
  spec.learning_rate = 0.05;
  return spec;
}

std::string state_bytes(Trainer& trainer) {
  std::string bytes;
  for (const StateTensor& tensor : trainer.parameters().state())
    bytes.append(static_cast<const char*>(tensor.data), static_cast<std::size_t>(tensor.bytes()));
  const Tensor& running = trainer.running().slab();
  return bytes.append(static_cast<const char*>(running.raw()),
                      static_cast<std::size_t>(running.bytes()));
}

}  // namespace memfloor::testing

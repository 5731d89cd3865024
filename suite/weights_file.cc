#include "suite/weights_file.h"

#include <vector>

#include "core/safetensors.h"

namespace memfloor {
namespace {

// Canonical (outputs, taps, inputs) to PyTorch's (outputs, inputs, taps), or back.
std::vector<float> swap_taps_and_inputs(const std::vector<float>& from, std::int64_t outputs,
                                        std::int64_t rows, std::int64_t columns) {
  std::vector<float> to(from.size());
  for (std::int64_t o = 0; o < outputs; ++o)
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c)
        to[(o * columns + c) * rows + r] = from[(o * rows + r) * columns + c];
  return to;
}

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + ")";
}

std::vector<float> values_of(const SafetensorsFile& file, const std::string& name,
                             const std::vector<std::int64_t>& shape) {
  const TensorView& tensor = file.get(name);
  if (tensor.shape != shape)
    throw InputError(concat("'", file.path(), "': tensor '", name, "' has the shape ",
                            text_of(tensor.shape), " where this model has ", text_of(shape),
                            "; use weights of this model"));
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  tensor.copy_to(values.data());
  return values;
}

const char* const kRunningNames[2] = {".running_mean", ".running_var"};

}  // namespace

void save_weights(const std::string& path, const ParameterStore& parameters,
                  RunningStatistics& running, TensorOps& ops) {
  SafetensorsWriter writer;
  for (std::size_t h = 0; h < parameters.specs().size(); ++h) {
    const ParameterSpec& spec = parameters.specs()[h];
    writer.add(spec.name, StoredType::f32, spec.export_shape,
               [&parameters, &spec, h](const auto& put) {
                 std::vector<float> values(static_cast<std::size_t>(spec.elements()));
                 parameters.read_dense(static_cast<int>(h), values.data());
                 if (spec.taps > 1)
                   values = swap_taps_and_inputs(values, spec.outputs, spec.taps, spec.inputs);
                 put(values.data(), spec.elements() * 4);
               });
  }
  for (std::size_t h = 0; h < running.entries().size(); ++h)
    for (int which = 0; which < 2; ++which) {
      const auto& entry = running.entries()[h];
      writer.add(entry.name + kRunningNames[which], StoredType::f32, {entry.channels},
                 [&running, &ops, &entry, h, which](const auto& put) {
                   std::vector<float> values(static_cast<std::size_t>(entry.channels));
                   ops.download(values.data(),
                                running.evaluated(static_cast<int>(h)) + which * entry.channels,
                                entry.channels * 4);
                   put(values.data(), entry.channels * 4);
                 });
    }
  writer.write(path);
}

void save_sparse_weights(const std::string& path, const ParameterStore& parameters) {
  SafetensorsWriter writer;
  std::vector<std::vector<std::int32_t>> integers;  // live until write()
  const auto add_integers = [&](const std::string& name, std::vector<std::int32_t> values) {
    integers.push_back(std::move(values));
    writer.add(name, StoredType::i32, {static_cast<std::int64_t>(integers.back().size())},
               integers.back().data());
  };
  for (std::size_t h = 0; h < parameters.specs().size(); ++h) {
    const ParameterSpec& spec = parameters.specs()[h];
    if (!parameters.compressed(static_cast<int>(h))) continue;
    std::vector<std::uint8_t> stored(static_cast<std::size_t>(spec.elements()));
    parameters.read_pattern(static_cast<int>(h), stored.data());
    // Columns in PyTorch's order: input channels outside, taps inside.
    const auto canonical = [&spec](std::int64_t o, std::int64_t column) {
      return (o * spec.taps + column % spec.taps) * spec.inputs + column / spec.taps;
    };
    const std::int64_t columns = spec.taps * spec.inputs;
    std::vector<std::int32_t> indices, row_starts{0};
    for (std::int64_t o = 0; o < spec.outputs; ++o) {
      for (std::int64_t column = 0; column < columns; ++column)
        if (stored[canonical(o, column)]) indices.push_back(static_cast<std::int32_t>(column));
      row_starts.push_back(static_cast<std::int32_t>(indices.size()));
    }
    const auto non_zeros = static_cast<std::int64_t>(indices.size());
    writer.set_metadata(spec.name + ".shape", concat("[", spec.outputs, ", ", columns, "]"));
    add_integers(spec.name + ".indices", std::move(indices));
    add_integers(spec.name + ".indptr", std::move(row_starts));
    const std::int32_t* const of_values = integers[integers.size() - 2].data();
    const std::int32_t* const starts = integers.back().data();
    writer.add(spec.name + ".data", StoredType::f32, {non_zeros},
               [&parameters, &spec, canonical, of_values, starts, h](const auto& put) {
                 std::vector<float> dense(static_cast<std::size_t>(spec.elements())), values;
                 parameters.read_dense(static_cast<int>(h), dense.data());
                 for (std::int64_t o = 0; o < spec.outputs; ++o)
                   for (std::int32_t k = starts[o]; k < starts[o + 1]; ++k)
                     values.push_back(dense[canonical(o, of_values[k])]);
                 put(values.data(), static_cast<std::int64_t>(values.size()) * 4);
               });
  }
  writer.write(path);
}

void load_weights(const std::string& path, ParameterStore& parameters, RunningStatistics& running,
                  TensorOps& ops, bool need_running) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  if (running.entries().empty())
    for (const std::string& name : file.names())
      if (name.ends_with(kRunningNames[0]))
        throw InputError(concat("'", path, "' was trained with batch norm (it has '", name,
                                "'), but this model has none; use --norm batch"));
  parameters.write_dense([&](ParameterStore::Handle h, float* to) {
    const ParameterSpec& spec = parameters.specs()[static_cast<std::size_t>(h)];
    std::vector<float> values = values_of(file, spec.name, spec.export_shape);
    if (spec.taps > 1) values = swap_taps_and_inputs(values, spec.outputs, spec.inputs, spec.taps);
    std::copy(values.begin(), values.end(), to);
  });
  bool any = need_running;
  for (const auto& entry : running.entries())
    for (const char* suffix : kRunningNames) any |= file.find(entry.name + suffix) != nullptr;
  if (!any) return;
  ops.upload(running.slab().raw(), running.slab().bytes(), [&](void* host) {
    for (const auto& entry : running.entries())
      for (int which = 0; which < 2; ++which) {
        const auto values = values_of(file, entry.name + kRunningNames[which], {entry.channels});
        std::copy(values.begin(), values.end(),
                  static_cast<float*>(host) + entry.offset + which * entry.channels);
      }
  });
}

}  // namespace memfloor

#include "suite/snapshot.h"

#include <cstring>
#include <limits>

#include "core/safetensors.h"
#include "suite/environment.h"

namespace memfloor {
namespace {

using nlohmann::json;

json to_json(const MemoryRecord& r) {
  return {{"peak_total", r.peak_total},
          {"at_peak", r.at_peak},
          {"category_peak", r.category_peak},
          {"allocated_peak", r.allocated_peak}};
}

MemoryRecord record_from(const json& j) {
  MemoryRecord r;
  j.at("peak_total").get_to(r.peak_total);
  j.at("at_peak").get_to(r.at_peak);
  j.at("category_peak").get_to(r.category_peak);
  j.at("allocated_peak").get_to(r.allocated_peak);
  return r;
}

// What must agree for a snapshot to be continued.
json identity_of(const RunSpec& spec) {
  json identity = to_json(spec);
  identity.erase("threads");
  identity.erase("data_dir");
  return identity;
}

std::vector<StateTensor> tensors_of(Trainer& trainer) {
  auto tensors = trainer.parameters().state();
  Tensor& running = trainer.running().slab();
  tensors.push_back({"running_statistics", running.dtype(), running.elements(), running.raw()});
  return tensors;
}

}  // namespace

void write_snapshot(const std::string& path, const TrainingState& state, Trainer& trainer) {
  SafetensorsWriter writer;
  for (const auto& tensor : tensors_of(trainer))
    writer.add(tensor.name, tensor.type, {tensor.elements}, tensor.data);
  const LossScale& scale = trainer.loss_scaler().state();
  const json progress{{"updates", state.updates},
                      {"skipped", state.skipped},
                      {"loss_scale", scale.scale},
                      {"clean_minibatches", scale.clean_minibatches},
                      {"epoch_loss", state.epoch_totals.loss},
                      {"epoch_correct", state.epoch_totals.correct},
                      {"epoch_samples", state.epoch_totals.terms},
                      {"curve", state.curve},
                      {"threads", state.threads},
                      {"training_record", to_json(trainer.training_record)},
                      {"evaluation_record", to_json(trainer.evaluation_record)}};
  writer.set_metadata("memfloor_snapshot", "1");
  writer.set_metadata("source_sha256", source_sha256());
  writer.set_metadata("spec", identity_of(trainer.spec()).dump());
  writer.set_metadata("progress", progress.dump());
  writer.write(path);
}

bool is_snapshot_of(const std::string& path, const RunSpec& spec) {
  try {
    const SafetensorsFile file = SafetensorsFile::open(path);
    const auto is = [&](const char* key, const std::string& value) {
      const auto found = file.metadata().find(key);
      return found != file.metadata().end() && found->second == value;
    };
    return is("spec", identity_of(spec).dump()) && is("source_sha256", source_sha256());
  } catch (const InputError&) {
    return false;
  }
}

TrainingState read_snapshot(const std::string& path, Trainer& trainer) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  const auto text = [&](const char* key) {
    const auto found = file.metadata().find(key);
    if (found == file.metadata().end())
      throw InputError(concat("'", path, "' is not a memfloor snapshot (no ", key,
                              "); delete it to start anew"));
    return json::parse(found->second, nullptr, false);
  };
  const json mine = identity_of(trainer.spec()), theirs = text("spec");
  for (const auto& [key, value] : mine.items())
    if (!theirs.is_object() || theirs.value(key, json()) != value)
      throw InputError(concat("the snapshot '", path, "' is of another run: its ", key, " is ",
                              theirs.is_object() ? theirs.value(key, json()).dump() : "unknown",
                              ", not ", value.dump(), "; give the same spec, or another --out"));
  TrainingState state;
  try {
    const json progress = text("progress");
    progress.at("updates").get_to(state.updates);
    progress.at("skipped").get_to(state.skipped);
    trainer.loss_scaler().resume_from({progress.at("loss_scale").get<float>(),
                                       progress.at("clean_minibatches").get<std::int64_t>()});
    const json& loss = progress.at("epoch_loss");  // null, as JSON has it, once it diverged
    state.epoch_totals.loss =
        loss.is_null() ? std::numeric_limits<double>::quiet_NaN() : loss.get<double>();
    progress.at("epoch_correct").get_to(state.epoch_totals.correct);
    progress.at("epoch_samples").get_to(state.epoch_totals.terms);
    state.curve = progress.at("curve").get<json::array_t>();
    progress.at("threads").get_to(state.threads);
    trainer.training_record = record_from(progress.at("training_record"));
    trainer.evaluation_record = record_from(progress.at("evaluation_record"));
  } catch (const json::exception&) {
    throw InputError(concat("the snapshot '", path, "' is damaged; delete it to start anew"));
  }
  for (const auto& tensor : tensors_of(trainer)) {
    const TensorView& view = file.get(tensor.name);
    if (view.type != tensor.type || view.elements() != tensor.elements)
      throw InputError(concat("the snapshot '", path, "' has another '", tensor.name,
                              "'; delete it to start anew"));
    trainer.ops().upload(tensor.data, view.bytes, [&](void* host) {
      std::memcpy(host, view.data, static_cast<std::size_t>(view.bytes));
    });
  }
  try {
    trainer.parameters().state_restored();
  } catch (const InputError& error) {
    throw InputError(concat("the snapshot '", path, "' is damaged: ", error.what(),
                            "; delete it to start anew"));
  }
  trainer.resume_after(state.updates);
  return state;
}

}  // namespace memfloor

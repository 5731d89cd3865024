#include "suite/predictor.h"

#include <algorithm>

#include "core/error.h"

namespace memfloor {
namespace {

// Of few shapes all are decisive.
constexpr std::size_t kFewShapes = 8;

using Phases = std::vector<std::pair<std::string, std::function<void()>>>;

// What runs beside training minibatches, by the names of the phases.
Phases other_phases(Trainer& trainer) {
  const Task& task = trainer.task();
  Phases phases{{"pattern update", [&trainer] { trainer.move_pattern(); }}};
  for (const Part& part : every_shape(task, task.recalibration_parts()))
    phases.push_back(
        {concat("recalibration/", part.count), [&trainer, part] { trainer.recalibrate(0, part); }});
  for (const Part& part : every_shape(task, task.evaluation_parts()))
    phases.push_back({task.shape_name(part), [&trainer, part] { trainer.evaluate(part); }});
  return phases;
}

// The most bytes alive at one instant.
std::int64_t peak_of(const EventLog& events) {
  std::int64_t live = 0, peak = 0;
  for (const LedgerEvent& event : events) {
    if (event.kind == LedgerEvent::Kind::allocate) live += event.bytes;
    if (event.kind == LedgerEvent::Kind::free) live -= event.bytes;
    peak = std::max(peak, live);
  }
  return peak;
}

// Whether some figure was higher in `one` than in all before.
bool raises(const MemoryRecord& one, const MemoryRecord& all) {
  for (int c = 0; c < kCategoryCount; ++c)
    if (one.category_peak[c] > all.category_peak[c]) return true;
  return one.peak_total > all.peak_total || one.allocated_peak > all.allocated_peak;
}

}  // namespace

Predictor::Predictor(const RunSpec& spec, const Task& task, std::shared_ptr<Backend> target)
    : null_(make_null_backend(std::move(target))), trainer_(spec, task, *null_, no_memory(), true) {
  trainer_.ledger().start_log([this](EventLog&& events) { done_.push_back(std::move(events)); });
}

void Predictor::run(const std::function<void()>& phases) {
  done_.clear();
  phases();
  for (EventLog& events : done_) take(std::move(events));
}

// The events of a phase, and before the first phase those of the set-up.
void Predictor::take(EventLog&& events) {
  planner_.add(events);
  const auto phase = std::find_if(events.begin(), events.end(), [](const LedgerEvent& event) {
    return event.kind == LedgerEvent::Kind::phase_begin;
  });
  if (phase->label == wanted_) planned_ = planner_.last_phase();
  if (set_up_ == 0) {
    prediction_.log.assign(events.begin(), phase);
    set_up_ = prediction_.log.size();
  }
  events.erase(events.begin(), phase);
  const std::int64_t peak = peak_of(events);
  if (peak <= highest_) return;
  highest_ = peak;
  prediction_.log.resize(set_up_);
  std::ranges::move(events, std::back_inserter(prediction_.log));
}

Prediction Predictor::predict() {
  trainer_.initialize();
  const Task& task = trainer_.task();
  const std::vector<Minibatch> shapes = task.every_shape();
  for (const Minibatch& minibatch : shapes) {
    const MemoryRecord before = std::exchange(trainer_.training_record, {});
    Totals totals;
    run([&] { totals = trainer_.train(minibatch, 0); });
    const MemoryRecord one = std::exchange(trainer_.training_record, before);
    if (raises(one, before) || shapes.size() <= kFewShapes)
      prediction_.decisive.push_back(minibatch);
    trainer_.training_record.add(one);
    if (trainer_.work.forward > prediction_.work.forward) {
      prediction_.work = trainer_.work;
      prediction_.work_terms = totals.terms;
    }
    phases_[task.shape_name(minibatch)] = [this, minibatch] { trainer_.train(minibatch, 0); };
  }
  for (auto& [name, phase] : other_phases(trainer_)) {
    run(phase);
    phases_[name] = std::move(phase);
  }
  prediction_.training = trainer_.training_record;
  prediction_.evaluation = trainer_.evaluation_record;
  prediction_.layout = planner_.layout();
  return prediction_;
}

std::vector<ArenaLayout::Placement> Predictor::plan_phase(std::string_view name) {
  const auto found = phases_.find(name);
  MEMFLOOR_CHECK(found != phases_.end(), "no phase '", name, "' was predicted");
  wanted_ = name;
  run(found->second);  // after a minibatch the pattern of non-zeros may move, in its own phase
  return planned_;
}

Prediction predict(const RunSpec& spec, const Task& task, std::shared_ptr<Backend> target) {
  return Predictor(spec, task, std::move(target)).predict();
}

void run_decisive(Trainer& trainer, const Prediction& prediction, float learning_rate) {
  for (const Minibatch& minibatch : prediction.decisive) trainer.train(minibatch, learning_rate);
  for (const auto& [name, run] : other_phases(trainer)) run();
}

}  // namespace memfloor

#include "suite/training_run.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "core/error.h"
#include "suite/progress_line.h"
#include "suite/samples.h"
#include "suite/weights_file.h"

namespace memfloor {
namespace {

volatile std::sig_atomic_t interrupted = 0;

// While alive, SIGINT and SIGTERM ask the run to stop after the current update; a second one kills.
class InterruptGuard {
 public:
  InterruptGuard() {
    interrupted = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { interrupted = 1; };
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(SIGINT, &action, &old_int_);
    sigaction(SIGTERM, &action, &old_term_);
  }
  ~InterruptGuard() {
    sigaction(SIGINT, &old_int_, nullptr);
    sigaction(SIGTERM, &old_term_, nullptr);
  }

 private:
  struct sigaction old_int_ {
  }, old_term_{};
};

// A figure of the latest updates; a fixed small buffer, so that a long run's bookkeeping does not
// grow.
class Recent {
 public:
  void add(double value) { recent_[count_++ % kKept] = value; }
  double median() const { return memfloor::median({recent_, recent_ + std::min(count_, kKept)}); }

 private:
  static constexpr std::size_t kKept = 2048;
  double recent_[kKept] = {};
  std::size_t count_ = 0;
};

// Appends a line for every minibatch; a resumed run first drops the lines it will write again, in
// place: killed at any moment, it has lost none of the others.
class LossLog {
 public:
  LossLog(const std::string& path, std::int64_t minibatches_done) : path_(path) {
    if (path.empty()) return;
    if (minibatches_done > 0) {
      std::ifstream old(path);
      std::uintmax_t kept_bytes = 0;
      std::string line;
      for (std::int64_t i = 0; i < minibatches_done && std::getline(old, line); ++i)
        kept_bytes += line.size() + 1;
      std::error_code ignored;  // no such file: open() makes it
      std::filesystem::resize_file(path, kept_bytes, ignored);
    }
    file_.open(path, minibatches_done > 0 ? std::ios::app : std::ios::trunc);
    check();
  }
  // `update` is the number of the minibatch's update, or of the next one where there was none.
  void add(std::int64_t update, const Totals& totals, float learning_rate) {
    if (path_.empty()) return;
    nlohmann::json line{
        {"update", update}, {"loss", totals.mean_loss()}, {"learning_rate", learning_rate}};
    if (!totals.updated) line["skipped"] = true;
    file_ << line.dump() << std::endl;
    check();
  }

 private:
  void check() {
    if (!file_)
      throw InputError(concat("cannot write the loss log '", path_, "': ", std::strerror(errno),
                              "; check the folder and the disk"));
  }
  std::string path_;
  std::ofstream file_;
};

}  // namespace

void recalibrate_all(Trainer& trainer) {
  std::int64_t index = 0;
  for (const Part& part : trainer.task().recalibration_parts()) trainer.recalibrate(index++, part);
}

Totals evaluate_all(Trainer& trainer) {
  recalibrate_all(trainer);
  Totals totals;
  for (const Part& part : trainer.task().evaluation_parts()) totals.add(trainer.evaluate(part));
  return totals;
}

TrainingRun::TrainingRun(Session& session, TrainingOptions options)
    : session_(session),
      options_(std::move(options)),
      recipe_(find_recipe(session.spec)),
      updates_per_epoch_(session.task->minibatches_per_epoch()),
      total_updates_(updates_of(session.spec, updates_per_epoch_)),
      averaged_(averaged_epochs(session.spec, updates_per_epoch_)) {}

bool TrainingRun::done(const TrainingState& state) const {
  const std::int64_t epochs = session_.spec.epochs;
  return state.updates >= total_updates_ ||
         (epochs > 0 && state.minibatches() >= epochs * updates_per_epoch_);
}

float TrainingRun::learning_rate(std::int64_t update) const {
  if (session_.spec.learning_rate > 0) return static_cast<float>(session_.spec.learning_rate);
  return recipe_.learning_rate({update, total_updates_, updates_per_epoch_});
}

std::string TrainingRun::epoch_file(std::int64_t epoch) const {
  return concat(options_.snapshot_path, ".epoch", epoch);
}

std::vector<std::string> TrainingRun::epoch_files() const {
  std::vector<std::string> files;
  for (std::int64_t epoch = averaged_.first; epoch <= averaged_.last; ++epoch)
    if (is_averaged(epoch) && std::filesystem::exists(epoch_file(epoch)))
      files.push_back(epoch_file(epoch));
  return files;
}

void TrainingRun::remove_epoch_files() const {
  std::error_code ignored;
  for (const std::string& file : epoch_files()) std::filesystem::remove(file, ignored);
}

// Averages the kept weights, and takes the measure of what the whole training was for.
void TrainingRun::finish(TrainingOutcome& outcome) {
  Trainer& trainer = *session_.trainer;
  if (const std::vector<std::string> files = epoch_files(); files.size() > 1) {
    load_average(files, trainer.parameters());
    outcome.averaged_epochs = static_cast<std::int64_t>(files.size());
    outcome.final_quality = session_.task->quality(evaluate_all(trainer));
  }
  outcome.final_quality.update(session_.task->final_quality(trainer));
}

TrainingOutcome TrainingRun::run() {
  Trainer& trainer = *session_.trainer;
  const Task& task = *session_.task;
  TrainingOutcome outcome;
  TrainingState& state = outcome.state;
  const bool may_snapshot = !options_.snapshot_path.empty();
  if (options_.resume && std::filesystem::exists(options_.snapshot_path)) {
    state = read_snapshot(options_.snapshot_path, trainer);
    if (state.updates < 0 || state.skipped < 0 || state.minibatches() < 1 ||
        state.updates > total_updates_)
      throw InputError(concat("the snapshot '", options_.snapshot_path,
                              "' is damaged: it is after ", "update ", state.updates, " of ",
                              total_updates_, "; delete it to start anew"));
    // A finished run does not evaluate again, but its weights may still be saved.
    if (state.updates == total_updates_) recalibrate_all(trainer);
  }
  state.threads.insert(session_.spec.threads);

  ProgressLine progress(total_updates_, state.updates);
  if (state.minibatches() > 0) progress.say(concat("continuing after update ", state.updates));
  LossLog loss_log(options_.loss_log, state.minibatches());
  // Of an epoch of which every minibatch was skipped there is none.
  const auto loss_text = [&](int digits) {
    return state.epoch_totals.terms > 0 ? fixed(state.epoch_totals.mean_loss(), digits) : "none";
  };
  const InterruptGuard guard;
  Recent seconds, rates;
  const auto snapshot = [&] {
    try {
      write_snapshot(options_.snapshot_path, state, trainer);
    } catch (const Error& error) {  // the run itself is sound: go on, the last good snapshot stays
      progress.say(concat("warning: no snapshot after update ", state.updates, ": ", error.what()));
    }
  };

  while (!done(state)) {
    const Minibatch batch = task.minibatch(state.minibatches());
    const float rate = learning_rate(state.updates);
    const auto start = std::chrono::steady_clock::now();
    const Totals totals = trainer.train(batch, rate);
    const double step =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    seconds.add(step);
    rates.add(static_cast<double>(totals.terms) / step);
    loss_log.add(state.updates + 1, totals, rate);
    if (totals.updated) {
      ++state.updates;
      state.epoch_totals.add(totals);
    } else {
      ++state.skipped;
      progress.say(
          concat("minibatch ", state.minibatches(),
                 ": its gradients overflow FP16, so it changes nothing; the loss scale is now ",
                 trainer.loss_scaler().scale()));
    }
    progress.show(state.updates, concat("epoch ", batch.epoch + 1, "  loss ", loss_text(3), "  ",
                                        fixed(rates.median(), 0), " ", task.unit(), "/s "));

    if (state.minibatches() % updates_per_epoch_ == 0 || done(state)) {
      const Totals test = evaluate_all(trainer);
      nlohmann::json entry = task.quality(test);
      entry.update({{"epoch", batch.epoch + 1},
                    {"train_loss", state.epoch_totals.mean_loss()},
                    {"learning_rate", rate}});
      state.curve.push_back(entry);
      progress.say(concat("epoch ", batch.epoch + 1, ": train loss ", loss_text(4), ", ",
                          task.quality_text(entry)));
      state.epoch_totals = {};
      if (is_averaged(batch.epoch + 1))
        save_weights(epoch_file(batch.epoch + 1), trainer.parameters(), trainer.running(),
                     trainer.ops());
    }
    outcome.interrupted = interrupted != 0;
    const bool due =
        options_.snapshot_every > 0 && state.minibatches() % options_.snapshot_every == 0;
    if (may_snapshot && (due || outcome.interrupted)) snapshot();
    if (outcome.interrupted) break;
  }
  outcome.step_seconds_median = seconds.median();
  outcome.terms_per_second = rates.median();
  if (!outcome.interrupted) finish(outcome);
  return outcome;
}

}  // namespace memfloor

#include "suite/suite_runner.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <exception>
#include <list>

#include "core/error.h"
#include "suite/child_process.h"
#include "suite/progress_line.h"

namespace memfloor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kMinibatchesBetweenSnapshots = 50;

volatile std::sig_atomic_t interruptions = 0;

// While alive, SIGINT and SIGTERM are counted, and delivered only in wait_for().
class InterruptionCount {
 public:
  InterruptionCount() {
    interruptions = 0;
    sigset_t both;
    sigemptyset(&both);
    sigaddset(&both, SIGINT);
    sigaddset(&both, SIGTERM);
    sigprocmask(SIG_BLOCK, &both, &old_mask_);
    waiting_mask_ = old_mask_;
    sigdelset(&waiting_mask_, SIGINT);
    sigdelset(&waiting_mask_, SIGTERM);
    struct sigaction action {};
    action.sa_handler = [](int) { interruptions = interruptions + 1; };
    sigaction(SIGINT, &action, &old_int_);
    sigaction(SIGTERM, &action, &old_term_);
  }
  ~InterruptionCount() {
    sigaction(SIGINT, &old_int_, nullptr);
    sigaction(SIGTERM, &old_term_, nullptr);
    sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
  }

  // Until one of the descriptors is readable, a signal comes or a quarter of a second is over.
  void wait_for(std::vector<pollfd>& descriptors) const {
    const timespec longest{0, 250'000'000};
    ppoll(descriptors.data(), descriptors.size(), &longest, &waiting_mask_);
  }

 private:
  sigset_t old_mask_{}, waiting_mask_{};
  struct sigaction old_int_ {
  }, old_term_{};
};

std::vector<std::string> arguments_of(const SuiteTask& task, const ResultFolder& folder) {
  std::vector<std::string> arguments{task.command, "--spec", ChildProcess::kInput, "--out",
                                     folder.path_of(task)};
  if (task.command == "step") {
    arguments.push_back("--steps");
    arguments.push_back(std::to_string(task.steps));
  }
  if (task.command == "train") {
    // A short training is worth saving too.
    const std::int64_t tenth = std::max<std::int64_t>(1, task.spec.max_steps / 10);
    const std::int64_t between = task.spec.max_steps > 0
                                     ? std::min(tenth, kMinibatchesBetweenSnapshots)
                                     : kMinibatchesBetweenSnapshots;
    arguments.push_back("--snapshot-every");
    arguments.push_back(std::to_string(between));
    arguments.push_back("--resume");
  }
  return arguments;
}

class Runner {
 public:
  Runner(const std::vector<SuiteTask>& tasks, const ResultFolder& folder, SuiteEstimate& estimate,
         std::int64_t jobs)
      : tasks_(tasks),
        folder_(folder),
        jobs_(static_cast<std::size_t>(jobs)),
        progress_(static_cast<std::int64_t>(tasks.size()), 0) {
    for (const SuiteTask& task : tasks) estimates_.push_back(estimate.seconds(task));
  }

  SuiteOutcome run() {
    while (true) {
      while (!stopping() && may_start()) start();
      if (running_.empty()) break;
      wait();
      if (interruptions > forwarded_) forward();
      for (auto next = running_.begin(); next != running_.end();) {
        const auto child = next++;
        if (child->process.read()) continue;
        finish(*child);
        running_.erase(child);
      }
      if (!running_.empty()) show();
    }
    if (full_) std::rethrow_exception(full_);
    outcome_.interrupted = interruptions > 0 && done_ < tasks_.size();
    return outcome_;
  }

 private:
  struct Running {
    std::size_t index;
    ChildProcess process;
    Clock::time_point started;
  };

  bool stopping() const { return interruptions > 0 || full_; }

  bool may_start() const {
    if (next_ == tasks_.size()) return false;
    if (running_.empty()) return true;
    return running_.size() < jobs_ && !tasks_[next_].timed() &&
           !tasks_[running_.front().index].timed();
  }

  void start() {
    const SuiteTask& task = tasks_[next_];
    if (task.command == "train") {
      if (folder_.can_continue(task))
        progress_.say(concat(task.name, ": goes on where it was stopped"));
      else
        folder_.remove_snapshot(task);
    }
    running_.push_back({next_, ChildProcess(arguments_of(task, folder_), to_json(task.spec).dump()),
                        Clock::now()});
    ++next_;
  }

  void wait() {
    std::vector<pollfd> descriptors;
    for (const Running& child : running_)
      descriptors.push_back({child.process.descriptor(), POLLIN, 0});
    signals_.wait_for(descriptors);
  }

  // The first lets a training write its snapshot; whoever asks again is in a hurry.
  void forward() {
    for (const Running& child : running_) child.process.send(forwarded_ == 0 ? SIGINT : SIGKILL);
    if (forwarded_ == 0) progress_.say("stopping; Ctrl-C again to stop at once");
    forwarded_ = interruptions;
  }

  void finish(const Running& child) {
    const SuiteTask& task = tasks_[child.index];
    const double seconds = std::chrono::duration<double>(Clock::now() - child.started).count();
    estimated_of_done_ += estimates_[child.index];
    seconds_of_done_ += seconds;
    std::optional<std::string> failure = child.process.failure();
    if (!failure)
      if (const std::optional<std::string> fault = folder_.missing(task))
        failure = fault->empty() ? "it ended well and wrote no result" : *fault;
    if (failure && interruptions > 0) return;  // it was stopped, and did not fail
    ++done_;
    if (!failure) {
      ++outcome_.ran;
      progress_.say(concat("[", done_, " of ", tasks_.size(), "] ", task.name, ": ",
                           human_bytes(folder_.peak_bytes(task)), " at the peak, ",
                           human_seconds(seconds)));
      return;
    }
    outcome_.failed.push_back({task.name, *failure});
    progress_.say(
        concat("[", done_, " of ", tasks_.size(), "] ", task.name, " failed: ", *failure));
    try {
      folder_.check_space();
    } catch (const Error&) {
      full_ = std::current_exception();
    }
  }

  // Estimates are rough, but about equally wrong for everything. The first few seconds say little.
  double seconds_left() const {
    constexpr double kTrusted = 60;
    const double factor = (seconds_of_done_ + kTrusted) / (estimated_of_done_ + kTrusted);
    double left = 0;
    for (std::size_t i = next_; i < tasks_.size(); ++i) left += factor * estimates_[i];
    for (const Running& child : running_)
      left +=
          std::max(0.0, factor * estimates_[child.index] -
                            std::chrono::duration<double>(Clock::now() - child.started).count());
    return left;
  }

  void show() {
    const Running& child = running_.front();
    std::string details = tasks_[child.index].name;
    if (running_.size() > 1) details += concat(" and ", running_.size() - 1, " more");
    if (const std::string said = child.process.last_line(); !said.empty())
      details += concat(" (", said, ")");
    progress_.show(static_cast<std::int64_t>(done_), details, seconds_left());
  }

  const std::vector<SuiteTask>& tasks_;
  const ResultFolder& folder_;
  std::size_t jobs_, next_ = 0, done_ = 0;
  std::vector<double> estimates_;  // seconds
  double estimated_of_done_ = 0, seconds_of_done_ = 0;
  int forwarded_ = 0;  // interruptions that the children know of
  std::exception_ptr full_;
  ProgressLine progress_;
  SuiteOutcome outcome_;
  const InterruptionCount signals_;
  std::list<Running> running_;
};

}  // namespace

SuiteOutcome run_tasks(const std::vector<SuiteTask>& tasks, const ResultFolder& folder,
                       SuiteEstimate& estimate, std::int64_t jobs) {
  return Runner(tasks, folder, estimate, jobs).run();
}

}  // namespace memfloor

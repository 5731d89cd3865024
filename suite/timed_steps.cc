#include "suite/timed_steps.h"

#include <chrono>

#include "suite/models.h"

namespace memfloor {
namespace {

// Small enough for every model, precision and batch; time does not depend on it.
constexpr float kLearningRate = 0.001f;
constexpr int kWarmUps = 2;

}  // namespace

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::int64_t timed_steps_of(const RunSpec& spec) {
  return family_of(spec.model) == ModelFamily::wide_resnet ? 20 : 5;
}

TimedSteps::TimedSteps(Session& session) : session_(session) {
  run_decisive(*session.trainer, session.prediction, kLearningRate);
  for (int step = 0; step < kWarmUps; ++step)
    session.trainer->train(session.task->minibatch(next_++), kLearningRate);
}

double TimedSteps::step() {
  const Minibatch minibatch = session_.task->minibatch(next_++);
  std::int64_t terms = 0;
  const double seconds =
      seconds_of([&] { terms = session_.trainer->train(minibatch, kLearningRate).terms; });
  terms_ += terms;
  seconds_.push_back(seconds);
  rates_.push_back(static_cast<double>(terms) / seconds);
  return seconds;
}

}  // namespace memfloor

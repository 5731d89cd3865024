#include "engine/running_statistics.h"

#include <algorithm>

namespace memfloor {

RunningStatistics::Handle RunningStatistics::add(std::string name, std::int64_t channels) {
  entries_.push_back({std::move(name), channels, elements_});
  elements_ += 2 * channels;
  return static_cast<Handle>(entries_.size()) - 1;
}

void RunningStatistics::allocate(Ledger& ledger, TensorOps& ops) {
  ops_ = &ops;
  committed_ = Tensor(ledger, {elements_}, Dtype::f32, Category::buffer, "running statistics");
  proposed_ =
      Tensor(ledger, {elements_}, Dtype::f32, Category::buffer, "proposed running statistics");
}

void RunningStatistics::initialize() {
  ops_->upload(committed_.raw(), committed_.bytes(), [&](void* host) {
    for (const Entry& entry : entries_) {
      float* mean = static_cast<float*>(host) + entry.offset;
      std::fill(mean, mean + entry.channels, 0.0f);
      std::fill(mean + entry.channels, mean + 2 * entry.channels, 1.0f);
    }
  });
}

void RunningStatistics::begin_minibatch() {
  ops_->copy(proposed_.raw(), committed_.raw(), committed_.bytes());
  momentum_ = BatchNormRelu::kMomentum;
  recalibrated_ = false;
}

void RunningStatistics::commit() {
  ops_->copy(committed_.raw(), proposed_.raw(), committed_.bytes());
}

void RunningStatistics::begin_recalibration_part(std::int64_t part) {
  // From zero the first step, by the whole difference, is exact.
  if (part == 0) ops_->zero(proposed_.raw(), proposed_.bytes());
  momentum_ = 1 / static_cast<float>(part + 1);
  recalibrated_ = true;
}

}  // namespace memfloor

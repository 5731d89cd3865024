// After which updates the pattern moves: DSR's schedule for WRN-28-2 (Mostafa and Wang, "Parameter
// efficient training of deep convolutional neural networks by dynamic sparse reparameterization",
// ICML 2019, arXiv:1902.05967, reference code): every 100 updates, every 200 from epoch 25, 400
// from 80, 800 from 140, never from epoch 190 of 200, at 500 updates an epoch.
#pragma once

#include <cstdint>
#include <string>

namespace memfloor {

/// How many weights an event shall move: 20,000 of WRN-28-2's 1,451,520 positions, as published,
/// and the same share of another network's (ours); at least 1.
std::int64_t rewire_target(std::int64_t positions);

/// A run of another length has the same borders at the same shares of its updates. The periods are
/// time constants of the optimizer rather than of the run, so they stay, but are at most a quarter
/// of their stage, so that short runs rewire too. Both are our choices.
///
/// A stop before the published one leaves out the moves behind it and changes no other: for runs
/// whose last weights are averaged, which must have one pattern.
class RewireSchedule {
 public:
  static constexpr std::int64_t kUpdates = 200 * 500;  // of the published run
  static constexpr double kStop = 190.0 / 200;         // the share of it that moves the pattern

  /// `stop` in [0, kStop]: the pattern stays still after this share of the run.
  explicit RewireSchedule(std::int64_t total_updates, double stop = kStop)
      : total_(total_updates), stop_(stop) {}

  /// `step` counts updates from 1.
  bool moves_after(std::int64_t step) const;

  /// A sentence that says which schedule this is, and whether it is scaled.
  std::string note() const;

 private:
  std::int64_t last() const;  // update after which the pattern may still move

  std::int64_t total_;
  double stop_;
};

}  // namespace memfloor

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
class RewireSchedule {
 public:
  static constexpr std::int64_t kUpdates = 200 * 500;  // of the published run

  explicit RewireSchedule(std::int64_t total_updates) : total_(total_updates) {}

  /// `step` counts updates from 1.
  bool moves_after(std::int64_t step) const;

  /// A sentence that says which schedule this is, and whether it is scaled.
  std::string note() const;

 private:
  std::int64_t total_;
};

}  // namespace memfloor

#include "techniques/sparsity/rewire_schedule.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace memfloor {
namespace {

constexpr std::int64_t kEpochs = 200;
struct Stage {
  std::int64_t end;     // epoch
  std::int64_t period;  // updates
};
constexpr Stage kStages[] = {{25, 100}, {80, 200}, {140, 400}, {190, 800}};

}  // namespace

std::int64_t rewire_target(std::int64_t positions) {
  const double share = 20000.0 / 1451520.0;
  return std::max<std::int64_t>(1, std::llround(share * static_cast<double>(positions)));
}

std::int64_t RewireSchedule::last() const {
  if (stop_ == kStop) return total_;
  return static_cast<std::int64_t>(stop_ * static_cast<double>(total_));
}

bool RewireSchedule::moves_after(std::int64_t step) const {
  if (step > last()) return false;
  std::int64_t begin = 0;
  for (const Stage& stage : kStages) {
    // The first update of a run of one is still before the end of a stage.
    const std::int64_t end =
        std::max<std::int64_t>(2, (stage.end * total_ + kEpochs - 1) / kEpochs);
    const std::int64_t period = std::clamp<std::int64_t>((end - begin) / 4, 1, stage.period);
    if (step < end) return step % period == 0;
    begin = end;
  }
  return false;
}

std::string RewireSchedule::note() const {
  const std::string still =
      stop_ == kStop ? "" : concat("; stopped early: no move after update ", last());
  if (total_ == kUpdates)
    return "sparse schedule: the published one of DSR for WRN-28-2, over 100000 updates" + still;
  return concat("scaled sparse schedule: the stages that DSR's has over ", kUpdates,
                " updates end at the same shares of this run's ", total_,
                "; periods of 100 to 800 updates as published, but at most a quarter of a stage",
                still);
}

}  // namespace memfloor

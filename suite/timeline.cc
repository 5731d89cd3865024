#include "suite/timeline.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_map>

#include "core/error.h"

namespace memfloor {
namespace {

constexpr std::size_t kPoints = 598;                      // with the first and the last, 600
constexpr const char* kPatternUpdate = "pattern update";  // the trainer's name of this phase

using Stages = std::vector<std::pair<std::size_t, std::string>>;

// Follows logs, one after another; those after the set-up give instants.
class Follower {
 public:
  // Events of the set-up, if any, and of one phase, whose instants it returns; `stages` begin at
  // these places among the events, in order.
  std::vector<Instant> follow(const EventLog& events, const Stages& stages) {
    using Kind = LedgerEvent::Kind;
    std::vector<Instant> instants;
    std::string stage;
    bool in_phase = false;
    const auto add_instant = [&] {
      instants.push_back({static_cast<std::int64_t>(instants.size()), stage, live_});
    };
    auto next = stages.begin();
    for (std::size_t i = 0; i < events.size(); ++i) {
      const LedgerEvent& event = events[i];
      for (; next != stages.end() && next->first <= i; ++next) {
        stage = next->second;  // an event of its own: an update may allocate nothing
        add_instant();
      }
      if (event.kind == Kind::allocate) {
        alive_[event.id] = {event.category, event.bytes};
        at(live_, event.category) += event.bytes;
      } else if (event.kind == Kind::free) {
        const auto [category, bytes] = alive_.at(event.id);
        at(live_, category) -= bytes;
        alive_.erase(event.id);
      } else if (event.kind == Kind::retag) {
        auto& [category, bytes] = alive_.at(event.id);
        at(live_, category) -= bytes;
        category = event.category;
        at(live_, category) += bytes;
      } else {
        in_phase = event.kind == Kind::phase_begin;
        // A minibatch begins with forward.
        stage = event.label == kPatternUpdate ? kPatternUpdate : "forward";
      }
      if (in_phase) add_instant();
    }
    return instants;
  }

 private:
  std::unordered_map<std::uint32_t, std::pair<Category, std::int64_t>> alive_;
  ByteSplit live_{};
};

std::int64_t peak_of(const std::vector<Instant>& instants) {
  std::int64_t peak = -1;
  for (const Instant& instant : instants) peak = std::max(peak, instant.total());
  return peak;
}

}  // namespace

std::int64_t Instant::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

std::vector<Instant> instants_of_update(const Session& session) {
  const auto null = make_null_backend(session.backend);
  Trainer trainer(session.spec, *session.task, *null, no_memory(), true);
  Follower follower;
  std::vector<Instant> highest, pattern_update;
  Stages stages;  // of the current phase
  trainer.on_stage = [&](const char* name) {
    stages.emplace_back(trainer.ledger().log().size(), name);
  };
  trainer.ledger().start_log([&](EventLog&& events) {
    std::vector<Instant> instants = follower.follow(events, std::exchange(stages, {}));
    if (instants.front().stage == kPatternUpdate)
      pattern_update = std::move(instants);
    else if (peak_of(instants) > peak_of(highest))
      highest = std::move(instants);
  });
  trainer.initialize();
  for (const Minibatch& minibatch : session.prediction.decisive) trainer.train(minibatch, 0);
  trainer.move_pattern();
  for (Instant& instant : pattern_update) {
    instant.event = static_cast<std::int64_t>(highest.size());
    highest.push_back(std::move(instant));
  }
  MEMFLOOR_CHECK(peak_of(highest) == session.prediction.training.peak_total,
                 "the update followed has its peak at ", peak_of(highest),
                 " bytes, the prediction at ", session.prediction.training.peak_total);
  return highest;
}

std::vector<Instant> thinned(const std::vector<Instant>& instants, std::size_t most) {
  const std::size_t count = instants.size();
  if (count <= most) return instants;
  // The first, the last and one for every change of stage are beside the stretches' own.
  std::size_t others = 2;
  for (std::size_t i = 1; i < count; ++i) others += instants[i].stage != instants[i - 1].stage;
  const std::size_t stretches = std::max(most / 2, most - std::min(most, others));
  std::vector<Instant> points{instants.front()};
  for (std::size_t begin = 0, end; begin < count; begin = end) {
    const std::size_t stretch = begin * stretches / count;
    std::size_t highest = begin;
    for (end = begin; end < count && end * stretches / count == stretch &&
                      instants[end].stage == instants[begin].stage;
         ++end)
      if (instants[end].total() > instants[highest].total()) highest = end;
    if (instants[highest].event != points.back().event) points.push_back(instants[highest]);
  }
  if (points.back().event != instants.back().event) points.push_back(instants.back());
  return points;
}

nlohmann::json timeline_json(const std::vector<Instant>& instants) {
  using nlohmann::json;
  json points = json::array();
  for (const Instant& instant : thinned(instants, kPoints)) {
    json bytes = json::object();
    for (int c = 0; c < kCategoryCount; ++c)
      bytes[name_of(static_cast<Category>(c))] = instant.bytes[c];
    points.push_back({{"event", instant.event}, {"phase", instant.stage}, {"bytes", bytes}});
  }
  return {{"events", instants.size()}, {"points", points}};
}

}  // namespace memfloor

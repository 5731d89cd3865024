// Which bytes are alive at every instant of one whole update, from the ledger's log.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "suite/session.h"

namespace memfloor {

/// The state after an event of the log.
struct Instant {
  std::int64_t event;  // counted from 0, the update's beginning
  std::string stage;   // "forward", "backward", "update", "pattern update"
  ByteSplit bytes;

  std::int64_t total() const;
};

/// Every instant of the update in which the session's predicted peak is reached: forward, backward
/// and update of one minibatch, and the move of the pattern of non-zeros where the spec has one.
/// Runs them on the null backend.
std::vector<Instant> instants_of_update(const Session& session);

/// About `most` of them: the first, the last, and of stretches of events within one stage the
/// (first) instant with the highest total, so that the peak and every stage are there. None is an
/// average. Changes of stage beyond half of `most` make it more.
std::vector<Instant> thinned(const std::vector<Instant>& instants, std::size_t most);

/// The result's key "timeline": how many instants there were, and some 600 of them.
nlohmann::json timeline_json(const std::vector<Instant>& instants);

}  // namespace memfloor

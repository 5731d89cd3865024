// Snapshots: everything a killed run needs to go on as if nothing had happened, bit for bit.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "suite/trainer.h"

namespace memfloor {

/// How far a training has come.
struct TrainingState {
  std::int64_t updates = 0;
  std::int64_t skipped = 0;  // minibatches whose update an overflow forbade
  Totals epoch_totals;       // of the current epoch's updates, so far
  nlohmann::json curve = nlohmann::json::array();
  std::set<std::int64_t> threads;  // every number of threads it ran with; workspace depends on it

  std::int64_t minibatches() const { return updates + skipped; }
};

void write_snapshot(const std::string& path, const TrainingState& state, Trainer& trainer);

/// Whether it is a snapshot of the spec (threads and data_dir may differ) by this very code.
bool is_snapshot_of(const std::string& path, const RunSpec& spec);

/// Throws InputError for a damaged snapshot, or one of a different spec (threads and data_dir may
/// differ).
TrainingState read_snapshot(const std::string& path, Trainer& trainer);

}  // namespace memfloor

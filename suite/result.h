// Result files: one JSON object a run, as results/schema.json says, and its table for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "suite/session.h"
#include "suite/training_run.h"

namespace memfloor {

/// The whole object; `outcome` is null where nothing was trained.
nlohmann::json make_result(const std::string& command, const Session& session,
                           const TrainingOutcome* outcome);

/// Indented; strict JSON whatever bytes a folder's name has.
std::string to_text(const nlohmann::json& result);

/// Writes it atomically. Throws as AtomicFile does.
void write_result(const std::string& path, const nlohmann::json& result);

/// Throws InputError now, not after hours, if `path` could not be written.
void check_writable(const std::string& path);

/// The byte table.
std::string memory_table(const nlohmann::json& result);

}  // namespace memfloor

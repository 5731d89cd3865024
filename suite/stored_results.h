// Result files as they lie on the disk, read back: one file, or all of a folder.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "suite/run_spec.h"

namespace memfloor {

struct StoredResult {
  std::string path;
  std::string command;
  RunSpec spec;
  nlohmann::json content;  // as results/schema.json says
};

/// The result in `path`, or every result in the folder `path` and the folders in it, in order of
/// their paths. JSON of a folder that is no result (a machine's description, a schema) is passed
/// over; of files with equal contents only the first counts, and a sentence is added to `notes`.
/// Throws InputError, one sentence, for a path that is not there, a folder without results, a file
/// that is not strict JSON (NaN, a key that comes twice), and a result that lacks what
/// comparing needs: command, spec, memory, environment.
std::vector<StoredResult> read_results(const std::string& path, std::vector<std::string>& notes);

/// The value at a place like "memory.category_peak.weight"; null where there is none.
const nlohmann::json& value_at(const nlohmann::json& object, const std::string& place);

}  // namespace memfloor

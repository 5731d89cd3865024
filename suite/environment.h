// What identifies code, machine and libraries in a result file, and what the system says of memory.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "backends/backend.h"

namespace memfloor {

/// The `environment` object of a result; `data` may be null.
nlohmann::json environment_of(const Backend& backend, const nlohmann::json& data);

/// As in `environment`: "0.1.0", and the hash over the source files.
std::string memfloor_version();
std::string source_sha256();

/// Anonymous resident memory of this process, bytes (Linux's RssAnon); 0 where it is unknown.
std::int64_t resident_anonymous_bytes();

}  // namespace memfloor

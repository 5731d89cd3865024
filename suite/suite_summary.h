// What a folder of results says, from its files alone.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace memfloor {

/// A table of each workload: what its cases take at the peak, how much less that is than the
/// baseline's, what they compute again, how fast they are and what they reach. Files that are no
/// results are listed with the reason.
nlohmann::json suite_summary(const std::string& folder);

/// The same for people. Of cases with a prediction only, baseline and presets are listed; the
/// others are counted.
std::string summary_text(const nlohmann::json& summary);

}  // namespace memfloor

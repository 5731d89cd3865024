// What a folder of results says of the machine that made them, in its machine.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace memfloor {

/// Of a result's `environment`: what describes the machine and the build, with a name for it.
nlohmann::json machine_of(const nlohmann::json& environment);

/// "amd_epyc_avx2_2cores"
std::string machine_name(const nlohmann::json& environment);

/// Writes folder/machine.json where there is none or the build is another. Throws InputError where
/// there is one of another machine.
void claim_for_machine(const std::string& folder, const nlohmann::json& environment);

}  // namespace memfloor

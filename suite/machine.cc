#include "suite/machine.h"

#include <cctype>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "core/error.h"
#include "suite/result.h"

namespace memfloor {
namespace {

using nlohmann::json;

// A fingerprint has the number of threads, which one machine may vary.
std::string without_threads(const json& fingerprint) {
  static const std::regex threads(" ?threads=[0-9]+");
  return fingerprint.is_string() ? std::regex_replace(fingerprint.get<std::string>(), threads, "")
                                 : fingerprint.dump();
}

}  // namespace

std::string machine_name(const json& environment) {
  const auto text = [&](const char* key) {
    return environment[key].is_string() ? environment[key].get<std::string>() : "unknown";
  };
  std::string name;
  for (const unsigned char letter : text("cpu_model") + "_" + text("instruction_set"))
    if (std::isalnum(letter))
      name += static_cast<char>(std::tolower(letter));
    else if (!name.empty() && name.back() != '_')
      name += '_';
  return concat(name, "_", environment["cpu_count"], "cores");
}

json machine_of(const json& environment) {
  json machine{{"schema_version", 1}, {"machine", machine_name(environment)}};
  for (const char* key :
       {"cpu_model", "cpu_count", "instruction_set", "machine_memory_bytes", "gpu_model",
        "operating_system", "compiler", "compiler_flags", "build_type", "libraries", "fingerprint"})
    machine[key] = environment[key];
  return machine;
}

void claim_for_machine(const std::string& folder, const json& environment) {
  const std::string path = folder + "/machine.json";
  const json mine = machine_of(environment);
  if (std::filesystem::exists(path)) {
    const json theirs = json::parse(std::ifstream(path), nullptr, false);
    if (!theirs.is_object())
      throw InputError(concat("'", path, "' is damaged, so nobody can say which machine the ",
                              "results beside it are of; mend or delete it"));
    for (const char* key : {"cpu_model", "cpu_count", "instruction_set", "gpu_model"})
      if (theirs.value(key, json()) != mine[key])
        throw InputError(concat("'", folder, "' has the results of another machine: its ", key,
                                " is ", theirs.value(key, json()).dump(), ", not ",
                                mine[key].dump(), "; name another folder with --results"));
    const json fingerprint = theirs.value("fingerprint", json());
    if (without_threads(fingerprint) != without_threads(mine["fingerprint"]))
      throw InputError(concat("'", folder, "' has results of other libraries or kernels: its ",
                              "fingerprint is ", fingerprint.dump(), ", not ",
                              mine["fingerprint"].dump(), "; name another folder with --results"));
    json same = theirs;
    same["fingerprint"] = mine["fingerprint"];
    if (same == mine) return;
  }
  write_result(path, mine);
}

}  // namespace memfloor

#include "suite/environment.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "memfloor_build_info.h"

namespace memfloor {
namespace {

// The text after "key<separators>" in the first line of a file that starts with key.
std::string line_value(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) {
      const auto start = line.find_first_not_of("\t :=\"", key.size());
      if (start == std::string::npos) return {};
      const auto end = line.find_last_not_of("\" ");
      return line.substr(start, end + 1 - start);
    }
  return {};
}

nlohmann::json text_or_null(const std::string& text) {
  return text.empty() ? nlohmann::json() : nlohmann::json(text);
}

}  // namespace

nlohmann::json environment_of(const Backend& backend, const nlohmann::json& data) {
  using nlohmann::json;
  const json fingerprint = backend.fingerprint();
  json libraries = json::object();
  for (const build_info::Library& library : build_info::kLibraries)
    libraries[library.name] = library.version;
  libraries["oneDNN"] = fingerprint["onednn"];  // the one that runs, not the one compiled against
  std::string joined;
  for (const auto& [key, value] : fingerprint.items())
    joined += (joined.empty() ? "" : " ") + key + "=" +
              (value.is_string() ? value.get<std::string>() : value.dump());
  utsname system{};
  uname(&system);
  const std::string distribution = line_value("/etc/os-release", "PRETTY_NAME");
  return {
      {"memfloor_version", build_info::kVersion},
      {"git_commit", build_info::kGitCommit},
      {"source_sha256", build_info::kSourceSha256},
      {"compiler", build_info::kCompiler},
      {"compiler_flags", build_info::kCompilerFlags},
      {"build_type", build_info::kBuildType},
      {"libraries", libraries},
      {"cpu_model", text_or_null(line_value("/proc/cpuinfo", "model name"))},
      {"cpu_count", std::max(1u, std::thread::hardware_concurrency())},
      {"gpu_model", nullptr},
      {"instruction_set", fingerprint["instruction_set"]},
      {"machine_memory_bytes",
       static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE)},
      {"operating_system",
       distribution + (distribution.empty() ? "" : ", ") + system.sysname + " " + system.release},
      {"fingerprint", joined},
      {"data_sha256", data.is_object() ? data.value("sha256", json::object()) : json::object()}};
}

std::string memfloor_version() { return build_info::kVersion; }
std::string source_sha256() { return build_info::kSourceSha256; }

std::int64_t resident_anonymous_bytes() {
  const std::string value = line_value("/proc/self/status", "RssAnon");
  return value.empty() ? 0 : std::stoll(value) * 1024;
}

}  // namespace memfloor

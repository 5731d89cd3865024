#include "suite/result_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/atomic_file.h"
#include "core/error.h"
#include "suite/environment.h"
#include "suite/machine.h"
#include "suite/models.h"
#include "suite/snapshot.h"

namespace memfloor {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The sentence on how a result is broken; empty: it is not.
std::string fault_of(const json& result, const SuiteTask& task) {
  if (result.is_discarded()) return "it is no JSON, or was cut off";
  try {
    if (result.at("command") != task.command)
      return concat("it is of command ", result["command"].dump());
    std::int64_t sum = 0;
    for (const auto& [name, bytes] : result.at("memory").at("at_peak").items())
      sum += bytes.get<std::int64_t>();
    if (sum != result["memory"].at("peak_total_bytes").get<std::int64_t>())
      return "its bytes do not sum to its peak";
    if (!result.at("spec").is_object() || !result.at("environment").is_object())
      return "it has no spec";
    if (task.command == "measure" || task.command == "step")
      for (const json& note : result.at("notes"))
        if (note.get<std::string>().starts_with("prediction and measurement differ"))
          return "its bytes are not those predicted";
    if (task.command == "train" && result.at("quality").at("curve").empty())
      return "it has no curve of its training";
    if (task.command == "timeline" && result.at("timeline").at("points").empty())
      return "it has no points of its timeline";
    if (task.command == "step") {
      const auto timed = static_cast<std::int64_t>(result.at("time").at("step_seconds").size());
      if (timed < task.steps) return concat("it timed ", timed, " steps, not ", task.steps);
    }
  } catch (const json::exception&) {
    return "it lacks what a result has";
  }
  return {};
}

}  // namespace

ResultFolder::~ResultFolder() {
  if (lock_ >= 0) close(lock_);
}

void ResultFolder::open(const json& environment, bool shared) {
  for (const std::string& command : suite_commands()) {
    std::error_code error;
    fs::create_directories(path_ + "/" + command, error);
    if (error)
      throw InputError(concat("cannot make the folder '", path_, "/", command,
                              "': ", error.message(), "; name another with --results"));
  }
  lock_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ >= 0 && flock(lock_, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0 &&
      errno == EWOULDBLOCK)
    throw InputError(concat("another run of the suite is at work in '", path_,
                            "'; wait for its end, or name another folder with --results"));
  claim_for_machine(path_, environment);
  check_space();
  for (const std::string& command : suite_commands())
    remove_abandoned_temporaries(path_ + "/" + command);
}

void ResultFolder::check_space() const {
  AtomicFile probe(path_ + "/probe");
  probe.write(std::string(64 << 10, ' '));  // more than a result has; never committed
}

std::optional<std::string> ResultFolder::missing(const SuiteTask& task) const {
  const std::string path = path_of(task);
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return "";
  if (!fs::is_regular_file(status)) return "it is no file";
  const json result = json::parse(std::ifstream(path), nullptr, false);
  if (std::string fault = fault_of(result, task); !fault.empty()) return fault;
  json theirs = result["spec"], mine = to_json(task.spec);
  theirs.erase("data_dir"), mine.erase("data_dir");  // its hashes are compared below
  for (const auto& [key, value] : mine.items())
    if (theirs.value(key, json()) != value)
      return concat("its ", key, " is ", theirs.value(key, json()).dump(), ", not ", value.dump());
  const json& environment = environment_of(task.spec);
  const std::pair<const char*, const char*> identity[] = {
      {"source_sha256", "code"},         {"fingerprint", "libraries"},
      {"compiler", "a compiler"},        {"compiler_flags", "compiler flags"},
      {"build_type", "a kind of build"}, {"data_sha256", "data"}};
  for (const auto& [key, what] : identity)
    if (result["environment"].value(key, json()) != environment.value(key, json()))
      return concat("it is of other ", what);
  return std::nullopt;
}

std::int64_t ResultFolder::peak_bytes(const SuiteTask& task) const {
  std::ifstream file(path_of(task));
  return json::parse(file)["memory"]["peak_total_bytes"];
}

bool ResultFolder::can_continue(const SuiteTask& task) const {
  return is_snapshot_of(snapshot_of(task), task.spec);
}

void ResultFolder::remove_snapshot(const SuiteTask& task) const {
  const fs::path snapshot = snapshot_of(task);
  const std::string name = snapshot.filename().string();
  std::error_code error;
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(snapshot.parent_path(), error), end; !error && entry != end;
       entry.increment(error))
    if (const std::string other = entry->path().filename().string();
        other == name || other.starts_with(name + ".epoch"))
      files.push_back(entry->path());
  for (const fs::path& file : files) fs::remove(file, error);
}

const json& ResultFolder::environment_of(const RunSpec& spec) const {
  const std::string key = concat(spec.threads, " ", spec.data, " ", spec.data_dir);
  if (const auto known = environments_.find(key); known != environments_.end())
    return known->second;
  const json data =
      spec.data == "synthetic" ? json() : make_task(spec, DataUse::samples)->provenance();
  return environments_[key] =
             memfloor::environment_of(*make_cpu_backend(static_cast<int>(spec.threads)), data);
}

}  // namespace memfloor

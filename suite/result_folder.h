// The folder of one machine's results: whose it is, what it holds already, and what a killed run
// left in it.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "suite/suite_plan.h"

namespace memfloor {

class ResultFolder {
 public:
  explicit ResultFolder(std::string path) : path_(std::move(path)) {}
  ResultFolder(const ResultFolder&) = delete;
  ResultFolder& operator=(const ResultFolder&) = delete;
  ~ResultFolder();

  const std::string& path() const { return path_; }
  std::string path_of(const SuiteTask& task) const { return path_ + "/" + task.file; }
  std::string snapshot_of(const SuiteTask& task) const { return path_of(task) + ".snapshot"; }

  /// Makes it this machine's and clears it of half-written files. Throws InputError where it is
  /// another machine's or cannot be written, or where another run is at work in it; runs of
  /// `shared` folders, each with its own shard, do not exclude each other.
  void open(const nlohmann::json& environment, bool shared);
  /// Throws where nothing can be written any more.
  void check_space() const;

  /// Nothing: a valid result of the same command, spec, code, build, libraries and data is there.
  /// Else why not, "" where there is none at all.
  std::optional<std::string> missing(const SuiteTask& task) const;
  /// Of a result that is not missing.
  std::int64_t peak_bytes(const SuiteTask& task) const;
  /// Whether a training was stopped in its middle and has a snapshot from which it can go on.
  bool can_continue(const SuiteTask& task) const;
  /// Removes what a training leaves beside its result until it has ended.
  void remove_snapshot(const SuiteTask& task) const;

  /// The `environment` of a result that this program would write now.
  const nlohmann::json& environment_of(const RunSpec& spec) const;

 private:
  std::string path_;
  int lock_ = -1;
  mutable std::map<std::string, nlohmann::json> environments_;  // by data and threads
};

}  // namespace memfloor

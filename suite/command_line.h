// The command line: memfloor <command> [--flags]. Flags of the spec are its keys (see run_spec.h).
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "suite/run_spec.h"

namespace memfloor {

/// Of memfloor suite run.
struct SuiteFlags {
  std::string level = "quick", filter, results;  // empty: everything; the machine's own folder
  bool dry_run = false;
  std::int64_t jobs = 1;
  std::int64_t shard = 1, shards = 1;
};

struct CommandLine {
  std::string command;
  RunSpec spec;                     // as given, not validated
  std::vector<std::string> models;  // of many cases: the given one, or both workloads
  std::string out, init_weights, save_weights, save_sparse, weights, log_loss;
  std::string hypotheses, reference, tokenize;  // of bleu
  bool json = false, resume = false, help = false, lower_case = false;
  std::int64_t snapshot_every = 0;
  std::int64_t steps = 0;  // of step; 0: as many as is usual
  std::vector<std::int64_t> seeds;
  std::set<std::string> given;  // keys of the spec: typed, or in a --spec file and not the default
  SuiteFlags suite;
  std::vector<std::string> paths;            // of compare
  std::vector<std::string> benchmark_flags;  // --benchmark_*, passed through
};

/// Throws InputError, one sentence, for an unknown command or flag or a value of the wrong type.
CommandLine parse_command_line(const std::vector<std::string>& arguments);

std::string usage();

/// Runs a command line; the process's exit code. Throws what the library throws.
int run_command(const CommandLine& line);

/// memfloor suite run and memfloor suite summary.
int suite_run_command(const CommandLine& line);
int suite_summary_command(const CommandLine& line);

/// Scores translations: memfloor bleu.
int bleu_command(const CommandLine& line);

/// Two sets of results side by side: memfloor compare. 1 where there is a regression.
int compare_command(const CommandLine& line);

}  // namespace memfloor

// Google Benchmark over the registry of suite/cases.h, and over the ops of a step.
#pragma once

#include <string>
#include <vector>

#include "suite/command_line.h"

namespace memfloor {

/// Stable names, key=value: every case that run_benchmarks registers for this line.
std::vector<std::string> benchmark_names(const CommandLine& line);

/// Registers the cases of the line's spec and models and hands over to Google Benchmark with the
/// line's --benchmark_* flags. Impossible cases are skipped with their sentence. A case that fails
/// is reported, the others go on; returns 1 if one failed, 130 if Ctrl-C ended a training.
int run_benchmarks(const CommandLine& line);

}  // namespace memfloor

// Google Benchmark over what exists: whole steps, and the ops of a step by layer shape.
#pragma once

#include <string>
#include <vector>

#include "suite/command_line.h"

namespace memfloor {

/// Stable names, key=value: every case that run_benchmarks registers.
std::vector<std::string> benchmark_names();

/// Registers the cases and hands over to Google Benchmark with the line's --benchmark_* flags.
int run_benchmarks(const CommandLine& line);

}  // namespace memfloor

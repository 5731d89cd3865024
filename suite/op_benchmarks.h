// The ops of a step one by one, by layer shape, for Google Benchmark.
#pragma once

#include <benchmark/benchmark.h>

#include <functional>
#include <string>
#include <vector>

#include "suite/run_spec.h"

namespace memfloor {

struct OpBenchmark {
  static constexpr int kIterations = 20;

  std::string name;        // "op/convolution.forward/precision=fp32/images=100/..."
  std::string impossible;  // the sentence that says why; empty: it can run
  /// Times every iteration; returns the bytes of everything that the op works on.
  std::function<std::int64_t(benchmark::State&)> run;
};

/// Of the model of `base`, which is not validated: of WideResNets convolutions and batch norms in
/// the shapes of WRN-28-2, of every model the move of a sparse pattern.
std::vector<OpBenchmark> op_benchmarks(const RunSpec& base);

}  // namespace memfloor

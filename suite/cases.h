// The registry: every case that the suite knows, as values. `memfloor bench` runs them with Google
// Benchmark, `memfloor suite run` writes their result files.
#pragma once

#include <string>
#include <vector>

#include "suite/run_spec.h"

namespace memfloor {

enum class CaseKind {
  memory,  // bytes, predicted: the same on every machine of a kind
  step,    // seconds and bytes of real steps
  train,   // to the end of the recipe: quality
};
/// "memory", "step", "train"
const char* name_of(CaseKind kind);

struct Case {
  CaseKind kind;
  RunSpec spec;            // validated, unless it is impossible
  std::string name;        // "step/model=wrn28_2/data=synthetic/precision=bf16"; no two are equal
  std::string impossible;  // the sentence that says why; empty: it can run
};

/// The kind, case_name(), and for trainings the recipe, the seed and every other key that shapes a
/// training and differs from its default.
std::string name_of_case(CaseKind kind, const RunSpec& spec);

/// "model=wrn28_2,data=synthetic,checkpoint=recursive+normalization.json": the name without its
/// kind, for a result file in a folder of the kind.
std::string file_name(const Case& c);

/// The two workloads.
const std::vector<std::string>& suite_models();

/// Of each model the three kinds of every spec: all precisions with all on/off combinations of the
/// other techniques, the variants of single techniques, the presets. What `base` says beside the
/// model goes into all of them, and where that is impossible the case says so. Synthetic sentences
/// of memory and step cases are all of length 25 unless `base` has another: 160 pairs a minibatch,
/// as in the paper. Throws InputError for a model that there is not.
std::vector<Case> suite_cases(const RunSpec& base,
                              const std::vector<std::string>& models = suite_models());

}  // namespace memfloor

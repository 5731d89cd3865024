// The advisor: which combinations of techniques fit a memory budget, and what they cost.
#pragma once

#include <cstdint>
#include <vector>

#include "suite/run_spec.h"

namespace memfloor {

struct PlannedRun {
  RunSpec spec;
  std::int64_t peak_bytes = 0;  // the higher of training's and evaluation's; predicted
  double relative_work = 1;     // multiply-adds with recomputation, over those without
  double accuracy_risk = 0;     // points of accuracy that may be lost; see accuracy_risk()
};

/// Searches sparsity, precision, part size and checkpointing over `base` by prediction (of a
/// translation model: for synthetic sentences of one length, 25 unless the base has another).
/// Returns what fits `budget_bytes` and is not worse in both work and risk than another that fits,
/// lowest risk first. Where nothing fits: one element, the smallest peak found (above the budget).
std::vector<PlannedRun> plan_for_budget(const RunSpec& base, std::int64_t budget_bytes);

/// Points of test accuracy that a spec's techniques may cost on WRN-28-2; for a translation model
/// the same figures stand in, but that its layer norm sees no parts. Rough and ours, for ordering
/// only: DSR's published losses by sparsity (arXiv:1902.05967, five runs each), and a
/// guess that grows as batch norm's parts shrink, through 0.7 points at parts of 5 (12 epochs in
/// PyTorch).
double accuracy_risk(const RunSpec& spec);

}  // namespace memfloor

// The techniques by the names that a run spec uses. A new variant is its own files and one line
// here.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/batch_plan.h"
#include "engine/parameter_store.h"
#include "engine/precision_policy.h"
#include "engine/retention_plan.h"
#include "techniques/checkpointing/segment_tree.h"

namespace memfloor {

// Each throws InputError for a name it does not know, listing those it does.
PrecisionPolicy make_precision(const std::string& name);
std::unique_ptr<LossScaler> make_loss_scaler(const PrecisionPolicy& precision);
std::unique_ptr<BatchPlan> make_batch_plan(std::int64_t batch_size, std::int64_t microbatch);
/// "none", a plan in the form of segment_tree.h, or rules from the top of its tree down, as in
/// "segments:4/blocks/normalization"; for `chain`.
std::unique_ptr<RetentionPlan> make_retention_plan(const std::string& checkpoint,
                                                   const Chain& chain);
std::unique_ptr<ParameterStore> make_parameter_store(double sparsity);

/// The tree of such a plan that is not "none".
SegmentTree make_segment_tree(const std::string& checkpoint, const Chain& chain);

std::vector<std::string> precision_names();
std::vector<std::string> checkpoint_names();

}  // namespace memfloor

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
#include "techniques/sparsity/rewire_schedule.h"

namespace memfloor {

/// What a run spec says about sparsity; the default is off.
struct SparsityChoice {
  double sparsity = 0;  // share of the compressible weights that are zero
  std::string method = "dsr", index = "bitmap";
  std::int64_t total_updates = 1;  // of the run, which the method's schedule spans
  std::string scope = "layers";
  double rewire_stop = RewireSchedule::kStop;  // share of the run after which nothing moves
};

// Each throws InputError for a name it does not know, listing those it does.
/// `rounding`: nearest, stochastic, or empty for the mode's own.
PrecisionPolicy make_precision(const std::string& name, const std::string& rounding = "");
/// `initial_scale` 0: the mode's default. FP16 activations have dynamic loss scaling, which doubles
/// the scale after `window` minibatches without an overflow; other modes have none.
std::unique_ptr<LossScaler> make_loss_scaler(const PrecisionPolicy& precision, double initial_scale,
                                             std::int64_t window);
std::unique_ptr<BatchPlan> make_batch_plan(std::int64_t batch_size, std::int64_t microbatch);
/// "none", a plan in the form of segment_tree.h, or rules from the top of its tree down, as in
/// "segments:4/blocks/normalization"; for `chain`.
std::unique_ptr<RetentionPlan> make_retention_plan(const std::string& checkpoint,
                                                   const Chain& chain);
std::unique_ptr<ParameterStore> make_parameter_store(const SparsityChoice& choice);

/// The tree of such a plan that is not "none".
SegmentTree make_segment_tree(const std::string& checkpoint, const Chain& chain);

std::vector<std::string> precision_names();
std::vector<std::string> checkpoint_names();
std::vector<std::string> sparse_method_names();
std::vector<std::string> sparse_scope_names();
std::vector<std::string> sparse_index_names();

}  // namespace memfloor

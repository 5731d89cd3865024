#include "techniques/registry.h"

#include <charconv>
#include <functional>
#include <map>
#include <sstream>

#include "core/error.h"
#include "engine/dense_store.h"
#include "techniques/checkpointing/blocks.h"
#include "techniques/checkpointing/normalization.h"
#include "techniques/checkpointing/tapered.h"
#include "techniques/microbatching/fixed_parts.h"
#include "techniques/precision/loss_scaling.h"
#include "techniques/precision/sixteen_bits.h"
#include "techniques/sparsity/bitmap_pattern.h"
#include "techniques/sparsity/compressed_store.h"
#include "techniques/sparsity/csr_pattern.h"
#include "techniques/sparsity/dsr.h"
#include "techniques/sparsity/set.h"
#include "techniques/sparsity/static_pattern.h"

namespace memfloor {
namespace {

template <class T, class... From>
using Registry = std::map<std::string, std::function<T(From...)>>;

const Registry<PrecisionPolicy>& precisions() {
  static const Registry<PrecisionPolicy> registry{
      {"fp32", [] { return PrecisionPolicy{}; }},
      {"fp16", [] { return pure(Dtype::f16); }},
      {"bf16", [] { return pure(Dtype::bf16); }},
      {"fp16_master", [] { return with_masters(Dtype::f16); }},
      {"bf16_master", [] { return with_masters(Dtype::bf16); }},
      {"fp16_mixed", [] { return mixed(Dtype::f16); }},
      {"bf16_mixed", [] { return mixed(Dtype::bf16); }},
  };
  return registry;
}

// The levels of a plan; see make_retention_plan(). Those with ":K" take a number of segments.
const std::map<std::string, std::function<CutRule(std::int64_t count)>>& cut_rules() {
  static const std::map<std::string, std::function<CutRule(std::int64_t)>> registry{
      {"blocks", [](std::int64_t) { return every_block(); }},
      {"normalization", [](std::int64_t) { return every_unit(); }},
      {"recursive", [](std::int64_t) { return repeated_halves(); }},
      {"segments:K", balanced_segments},
      {"sqrt", [](std::int64_t) { return sqrt_segments(); }},
      {"tapered:K", tapered_segments},
  };
  return registry;
}

using SparseMethods = Registry<std::unique_ptr<SparseMethod>, const RewireSchedule&>;
template <class Method>
std::unique_ptr<SparseMethod> make_sparse_method(const RewireSchedule& schedule) {
  return std::make_unique<Method>(schedule);
}
const SparseMethods& sparse_methods() {
  static const SparseMethods registry{
      {"dsr", make_sparse_method<Dsr>},
      {"set", make_sparse_method<Set>},
      {"static", make_sparse_method<StaticPattern>},
  };
  return registry;
}

const Registry<std::unique_ptr<Pattern>>& sparse_indices() {
  static const Registry<std::unique_ptr<Pattern>> registry{
      {"bitmap", make_bitmap_pattern},
      {"csr16", [] { return make_csr_pattern(SparseIndex::csr16); }},
      {"csr32", [] { return make_csr_pattern(SparseIndex::csr32); }},
  };
  return registry;
}

const Registry<SparseScope>& sparse_scopes() {
  static const Registry<SparseScope> registry{
      {"layers", [] { return SparseScope::layers; }},
      {"all", [] { return SparseScope::all; }},
  };
  return registry;
}

template <class R>
std::vector<std::string> names_of(const R& registry) {
  std::vector<std::string> names;
  for (const auto& [name, make] : registry) names.push_back(name);
  return names;
}

[[noreturn]] void refuse(const char* flag, const std::string& name,
                         const std::vector<std::string>& names) {
  std::string known;
  for (const std::string& other : names) known += (known.empty() ? "" : ", ") + other;
  throw InputError(concat("--", flag, " '", name, "' is not known; this version knows: ", known));
}

template <class T, class... From>
T look_up(const Registry<T, From...>& registry, const std::string& name, const char* flag,
          From... from) {
  if (const auto found = registry.find(name); found != registry.end())
    return found->second(from...);
  refuse(flag, name, names_of(registry));
}

// "segments:4", "blocks"
CutRule make_cut_rule(const std::string& level, const Chain& chain) {
  const std::size_t colon = level.find(':');
  const bool has_count = colon != std::string::npos;
  const auto found = cut_rules().find(has_count ? level.substr(0, colon) + ":K" : level);
  if (found == cut_rules().end()) refuse("checkpoint", level, checkpoint_names());
  std::int64_t count = 0;
  if (has_count) {
    const char* last = level.data() + level.size();
    const auto [end, error] = std::from_chars(level.data() + colon + 1, last, count);
    if (error != std::errc{} || end != last || count < 1 || count > count_blocks(chain))
      throw InputError(concat("--checkpoint '", level,
                              "' is no number of segments: this model has ", count_blocks(chain),
                              " blocks, so K is a whole number from 1 to ", count_blocks(chain)));
  }
  return found->second(count);
}

}  // namespace

PrecisionPolicy make_precision(const std::string& name, const std::string& rounding) {
  PrecisionPolicy policy = look_up(precisions(), name, "precision");
  policy.name = name;
  if (!rounding.empty()) set_rounding(policy, rounding);
  return policy;
}

std::unique_ptr<LossScaler> make_loss_scaler(const PrecisionPolicy& precision, double initial_scale,
                                             std::int64_t window) {
  if (precision.activation == Dtype::f16)
    return std::make_unique<DynamicLossScaler>(initial_scale, window);
  if (initial_scale != 0)
    throw InputError(concat("--loss-scale is for the fp16 modes; --precision ", precision.name,
                            " keeps FP32's exponent range, so nothing underflows"));
  return std::make_unique<LossScaler>();
}

std::unique_ptr<BatchPlan> make_batch_plan(std::int64_t part_limit) {
  if (part_limit == 0) return std::make_unique<WholeBatch>();
  return std::make_unique<FixedParts>(part_limit);
}

std::unique_ptr<RetentionPlan> make_retention_plan(const std::string& checkpoint,
                                                   const Chain& chain) {
  if (checkpoint == "none") return std::make_unique<KeepAll>();
  return std::make_unique<TreePlan>(make_segment_tree(checkpoint, chain));
}

SegmentTree make_segment_tree(const std::string& checkpoint, const Chain& chain) {
  if (checkpoint.starts_with("plan:")) return parse_tree(checkpoint, chain);
  std::vector<CutRule> rules;
  std::istringstream levels(checkpoint + "/");
  for (std::string level; std::getline(levels, level, '/');)
    rules.push_back(make_cut_rule(level, chain));
  return make_tree(chain, rules);
}

std::unique_ptr<ParameterStore> make_parameter_store(const SparsityChoice& choice) {
  if (!(choice.rewire_stop > 0 && choice.rewire_stop <= RewireSchedule::kStop))
    throw InputError(concat("--rewire-stop is a share of the run above 0, at most ",
                            RewireSchedule::kStop, ", where the schedule ends, not ",
                            choice.rewire_stop, "; for a pattern that never moves give ",
                            "--sparse-method static"));
  const RewireSchedule schedule(choice.total_updates, choice.rewire_stop);
  auto method = look_up<std::unique_ptr<SparseMethod>, const RewireSchedule&>(
      sparse_methods(), choice.method, "sparse-method", schedule);
  auto pattern = look_up(sparse_indices(), choice.index, "sparse-index");
  const SparseScope scope = look_up(sparse_scopes(), choice.scope, "sparse-scope");
  if (choice.sparsity == 0) return std::make_unique<DenseStore>();
  return std::make_unique<CompressedStore>(choice.sparsity, std::move(method), std::move(pattern),
                                           scope);
}

std::vector<std::string> precision_names() { return names_of(precisions()); }
std::vector<std::string> checkpoint_names() {
  std::vector<std::string> names = names_of(cut_rules());
  names.insert(names.begin(), "none");
  names.insert(names.end(), {"plan:SEGMENTS", "budget:BYTES"});
  return names;
}
std::vector<std::string> sparse_method_names() { return names_of(sparse_methods()); }
std::vector<std::string> sparse_scope_names() { return names_of(sparse_scopes()); }
std::vector<std::string> sparse_index_names() { return names_of(sparse_indices()); }

}  // namespace memfloor

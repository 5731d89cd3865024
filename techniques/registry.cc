#include "techniques/registry.h"

#include <functional>
#include <map>

#include "core/error.h"
#include "engine/dense_store.h"
#include "techniques/microbatching/fixed_parts.h"
#include "techniques/precision/loss_scaling.h"
#include "techniques/precision/sixteen_bits.h"

namespace memfloor {
namespace {

template <class T>
using Registry = std::map<std::string, std::function<T()>>;

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

const Registry<std::unique_ptr<RetentionPlan>>& retention_plans() {
  static const Registry<std::unique_ptr<RetentionPlan>> registry{
      {"none", [] { return std::make_unique<KeepAll>(); }},
  };
  return registry;
}

template <class T>
std::vector<std::string> names_of(const Registry<T>& registry) {
  std::vector<std::string> names;
  for (const auto& [name, make] : registry) names.push_back(name);
  return names;
}

template <class T>
T look_up(const Registry<T>& registry, const std::string& name, const char* flag) {
  if (const auto found = registry.find(name); found != registry.end()) return found->second();
  std::string known;
  for (const std::string& other : names_of(registry)) known += (known.empty() ? "" : ", ") + other;
  throw InputError(concat("--", flag, " '", name, "' is not known; this version knows: ", known));
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

std::unique_ptr<BatchPlan> make_batch_plan(std::int64_t batch_size, std::int64_t microbatch) {
  if (microbatch == batch_size) return std::make_unique<WholeBatch>();
  return std::make_unique<FixedParts>(microbatch);
}

std::unique_ptr<RetentionPlan> make_retention_plan(const std::string& checkpoint) {
  return look_up(retention_plans(), checkpoint, "checkpoint");
}

std::unique_ptr<ParameterStore> make_parameter_store(double sparsity) {
  if (sparsity != 0)
    throw InputError(
        concat("--sparsity ", sparsity, " is not known; this version stores weights densely: 0"));
  return make_dense_store();
}

std::vector<std::string> precision_names() { return names_of(precisions()); }
std::vector<std::string> checkpoint_names() { return names_of(retention_plans()); }

}  // namespace memfloor

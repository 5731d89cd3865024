#include "techniques/registry.h"

#include <functional>
#include <map>

#include "core/error.h"
#include "engine/dense_store.h"
#include "techniques/microbatching/fixed_parts.h"
#include "techniques/precision/mixed.h"
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
      {"bf16_mixed", bf16_mixed},
  };
  return registry;
}

const Registry<std::unique_ptr<RetentionPlan>>& retention_plans() {
  static const Registry<std::unique_ptr<RetentionPlan>> registry{
      {"none", [] { return std::make_unique<KeepAll>(); }},
  };
  return registry;
}

using SparseMethods = Registry<std::unique_ptr<SparseMethod>, std::int64_t /*total_updates*/>;
template <class Method>
std::unique_ptr<SparseMethod> make_sparse_method(std::int64_t total_updates) {
  return std::make_unique<Method>(total_updates);
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

template <class T, class... From>
std::vector<std::string> names_of(const Registry<T, From...>& registry) {
  std::vector<std::string> names;
  for (const auto& [name, make] : registry) names.push_back(name);
  return names;
}

template <class T, class... From>
T look_up(const Registry<T, From...>& registry, const std::string& name, const char* flag,
          From... from) {
  if (const auto found = registry.find(name); found != registry.end())
    return found->second(from...);
  std::string known;
  for (const std::string& other : names_of(registry)) known += (known.empty() ? "" : ", ") + other;
  throw InputError(concat("--", flag, " '", name, "' is not known; this version knows: ", known));
}

}  // namespace

PrecisionPolicy make_precision(const std::string& name) {
  return look_up(precisions(), name, "precision");
}

std::unique_ptr<LossScaler> make_loss_scaler(const PrecisionPolicy&) {
  return std::make_unique<LossScaler>();
}

std::unique_ptr<BatchPlan> make_batch_plan(std::int64_t batch_size, std::int64_t microbatch) {
  if (microbatch == batch_size) return std::make_unique<WholeBatch>();
  return std::make_unique<FixedParts>(microbatch);
}

std::unique_ptr<RetentionPlan> make_retention_plan(const std::string& checkpoint) {
  return look_up(retention_plans(), checkpoint, "checkpoint");
}

std::unique_ptr<ParameterStore> make_parameter_store(const SparsityChoice& choice) {
  auto method = look_up(sparse_methods(), choice.method, "sparse-method", choice.total_updates);
  auto pattern = look_up(sparse_indices(), choice.index, "sparse-index");
  if (choice.sparsity == 0) return std::make_unique<DenseStore>();
  return std::make_unique<CompressedStore>(choice.sparsity, std::move(method), std::move(pattern));
}

std::vector<std::string> precision_names() { return names_of(precisions()); }
std::vector<std::string> checkpoint_names() { return names_of(retention_plans()); }
std::vector<std::string> sparse_method_names() { return names_of(sparse_methods()); }
std::vector<std::string> sparse_index_names() { return names_of(sparse_indices()); }

}  // namespace memfloor

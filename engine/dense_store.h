// The parameter store with sparsity off: every weight, gradient and state element exists. Stores
// that keep some parameters in another way derive from it and leave it the others.
#pragma once

#include "engine/parameter_store.h"

namespace memfloor {

/// Two slabs, for sensitive parameters and for the others; parameters lie in the order they were
/// added.
class DenseStore : public ParameterStore {
 public:
  void allocate(Ledger& ledger, TensorOps& ops, const PrecisionPolicy& precision,
                int optimizer_states) override;
  void initialize(std::uint32_t seed) override;

  const float* values(Handle handle) const override;
  void pack(Handle handle, const WeightLayout& layout, void* packed) override;

  void begin_minibatch() override { fresh_.assign(specs_.size(), true); }
  void add_gradient(Handle handle, const float* gradient, const WeightLayout& layout) override;
  void add_gradient(Handle handle, const float* gradient) override;
  bool gradients_finite() override;
  void update(const Optimizer& optimizer, const UpdateStep& step) override;

  bool pattern_moves() const override { return false; }
  bool pattern_moves_after(std::int64_t) const override { return false; }
  void move_pattern(std::int64_t) override {}

  std::vector<StateTensor> state() override;
  void state_restored() override {}
  std::vector<std::string> notes() const override { return {}; }

  void read_dense(Handle handle, float* to) const override;
  void read_dense_gradient(Handle handle, float* to) const override;
  void read_pattern(Handle handle, std::uint8_t* stored) const override;
  void write_dense(const Fill& fill) override;

 protected:
  /// Whether this class stores the parameter; where not, the deriving one does.
  virtual bool is_dense(const ParameterSpec&) const { return true; }
  /// Whether the parameter gets its first gradient of this minibatch now.
  bool first_gradient(Handle handle) {
    const bool first = fresh_[handle];
    fresh_[handle] = false;
    return first;
  }

  TensorOps* ops_ = nullptr;
  std::vector<ParameterSlab*> slabs_;  // a deriving class adds its own

 private:
  struct Place {
    ParameterSlab* slab = nullptr;  // null: not stored here
    std::int64_t offset = 0;
  };
  void* weights(Handle h) const { return places_[h].slab->weights(places_[h].offset); }
  void* gradients(Handle h) const { return places_[h].slab->gradients(places_[h].offset); }

  ParameterSlab sensitive_, others_;
  std::vector<Place> places_;
  std::vector<bool> fresh_;  // no gradient yet in this minibatch
};

}  // namespace memfloor

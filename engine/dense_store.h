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
  using ParameterStore::pack;
  void pack(Handle handle, std::int64_t first_output, const WeightLayout& layout,
            void* packed) override;
  bool pack_non_zeros(Handle, const NonZeroLayout&, void*, std::int64_t) override { return false; }
  void gather_rows(Ledger& ledger, Handle handle, const std::int32_t* rows, std::int64_t count,
                   Dtype to, void* out) override;

  void begin_minibatch() override { reached_.assign(specs_.size(), 0); }
  using ParameterStore::add_gradient;
  void add_gradient(Handle handle, std::int64_t first_output, const float* gradient,
                    const WeightLayout& layout) override;
  void add_row_gradients(Handle handle, const std::int32_t* rows, std::int64_t count,
                         const void* gradients, Dtype from) override;
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
  bool compressed(Handle) const override { return false; }
  void read_pattern(Handle handle, std::uint8_t* stored) const override;
  void write_dense(const Fill& fill) override;

 protected:
  /// Whether this class stores the parameter; where not, the deriving one does.
  virtual bool is_dense(const ParameterSpec&) const { return true; }
  /// Whether `rows` rows of the parameter, from `first` on, get their first gradient of this
  /// minibatch now.
  bool first_gradient(Handle handle, std::int64_t first, std::int64_t rows);
  /// What ops on `count` rows of the matrix need.
  Block row_scratch(Ledger& ledger, Handle handle, std::int64_t count) const;

  Ledger* ledger_ = nullptr;
  TensorOps* ops_ = nullptr;
  std::vector<ParameterSlab*> slabs_;  // a deriving class adds its own

 private:
  struct Place {
    ParameterSlab* slab = nullptr;  // null: not stored here
    std::int64_t offset = 0;
  };
  void* weights(Handle h, std::int64_t first_row = 0) const {
    return places_[h].slab->weights(places_[h].offset + first_row * row_elements(h));
  }
  void* gradients(Handle h, std::int64_t first_row = 0) const {
    return places_[h].slab->gradients(places_[h].offset + first_row * row_elements(h));
  }
  std::int64_t row_elements(Handle h) const { return specs_[h].taps * specs_[h].inputs; }

  ParameterSlab sensitive_, others_;
  std::vector<Place> places_;
  std::vector<std::int64_t> reached_;  // rows that have a gradient of this minibatch: the first ...
};

}  // namespace memfloor

// The parameter store with sparsity on: of compressible parameters only the non-zeros exist.
//
// Their values, gradients and optimizer state are one slab of exactly K elements, K = (1 -
// sparsity) times their positions, in which layers are moving ranges. When the pattern moves, what
// stays moves in place: first all of it to the front of its array, then, from the end, to where it
// belongs, with zeros where positions grew. That takes two workspaces: the next pattern, a bit a
// position, and the old one of one layer. Dense weights and gradients of a layer exist only where a
// kernel reads or writes them, one layer or tile at a time.
#pragma once

#include <memory>

#include "engine/dense_store.h"
#include "techniques/sparsity/pattern.h"
#include "techniques/sparsity/sparse_method.h"

namespace memfloor {

/// Which of the compressible parameters are stored compressed.
enum class SparseScope : std::uint8_t { layers, all };

class CompressedStore final : public DenseStore {
 public:
  /// sparsity in (0, 1): the share of compressible weights that do not exist. Under the scope
  /// `layers` the matrices of vocabularies are stored dense.
  CompressedStore(double sparsity, std::unique_ptr<SparseMethod> method,
                  std::unique_ptr<Pattern> pattern, SparseScope scope = SparseScope::layers);

  /// Throws InputError where the layers are more than the weights that are left.
  void allocate(Ledger& ledger, TensorOps& ops, const PrecisionPolicy& precision,
                int optimizer_states) override;
  /// The initial pattern is random, of the same density in every layer; a weight starts as it would
  /// in the dense model.
  void initialize(std::uint32_t seed) override;

  using DenseStore::pack;
  void pack(Handle handle, std::int64_t first_output, const WeightLayout& layout,
            void* packed) override;
  bool pack_non_zeros(Handle handle, const NonZeroLayout& layout, void* packed,
                      std::int64_t bytes) override;
  void gather_rows(Ledger& ledger, Handle handle, const std::int32_t* rows, std::int64_t count,
                   Dtype to, void* out) override;
  using DenseStore::add_gradient;
  void add_gradient(Handle handle, std::int64_t first_output, const float* gradient,
                    const WeightLayout& layout) override;
  void add_row_gradients(Handle handle, const std::int32_t* rows, std::int64_t count,
                         const void* gradients, Dtype from) override;

  bool pattern_moves() const override { return method_->moves(); }
  bool pattern_moves_after(std::int64_t step) const override { return method_->moves_after(step); }
  void move_pattern(std::int64_t step) override;

  std::vector<StateTensor> state() override;
  void state_restored() override;
  std::vector<std::string> notes() const override;

  void read_dense(Handle handle, float* to) const override;
  void read_dense_gradient(Handle handle, float* to) const override;
  bool compressed(Handle handle) const override { return !is_dense(specs_[handle]); }
  void read_pattern(Handle handle, std::uint8_t* stored) const override;
  /// Takes the weights' own pattern; where they have fewer non-zeros than the store holds, the
  /// first free positions are stored zeros. Optimizer state becomes zero.
  void write_dense(const Fill& fill) override;

 protected:
  bool is_dense(const ParameterSpec& spec) const override {
    return !spec.compressible || (spec.vocabulary && scope_ == SparseScope::layers);
  }

 private:
  using Visit = std::function<void(std::int64_t k, std::int64_t position)>;

  std::int64_t count(std::size_t l) const { return starts_[l + 1] - starts_[l]; }
  SparsePattern device_pattern(std::size_t l) const {
    return pattern_->layer(pattern_->arrays(), l, starts_[l]);
  }
  void set_counts(const std::vector<std::int64_t>& counts);
  void on_host_pattern(const std::function<void(const PatternArrays& host)>& body) const;
  void for_each_stored(Handle handle, const Visit& visit) const;
  void store_layer(const PatternArrays& host, std::size_t l, const std::uint64_t* bits,
                   const std::function<float(std::int64_t position)>& value);

  double sparsity_;
  std::unique_ptr<SparseMethod> method_;
  std::unique_ptr<Pattern> pattern_;
  SparseScope scope_;
  std::uint32_t seed_ = 0;

  std::vector<CompressedLayer> layers_;
  std::vector<std::size_t> layer_of_;           // by handle
  std::int64_t non_zeros_ = 0;                  // K
  std::int64_t words_ = 0, largest_words_ = 0;  // of bits: of all layers, of the largest
  ParameterSlab slab_;
  std::vector<std::int64_t> starts_;  // of layers in the slab, and K
  Tensor method_state_;               // empty where the method keeps none
};

}  // namespace memfloor

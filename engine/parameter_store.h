// Sparsity's seam: how parameters, their gradients and their optimizer state are stored, and when
// the pattern of non-zeros moves. Layers hold handles and never see the storage.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "core/philox.h"
#include "engine/parameter_slab.h"

namespace memfloor {

/// How initial values are drawn: constant, normal(0, scale) or uniform(-scale, scale).
struct Initializer {
  enum class Kind { constant, normal, uniform } kind = Kind::constant;
  float scale = 0;  // the constant, the standard deviation, the bound
};

struct ParameterSpec {
  std::string name;  // as in PyTorch's state dict
  /// Canonical order: (outputs, taps, inputs) for a convolution, (outputs, 1, inputs) for a matrix,
  /// (n, 1, 1) for a vector.
  std::int64_t outputs = 0, taps = 1, inputs = 1;
  Initializer init;
  bool compressible = false;               // may be stored sparse
  bool sensitive = false;                  // FP32 under every precision policy
  std::vector<std::int64_t> export_shape;  // OIHW, as PyTorch has it
  bool vocabulary = false;                 // a row for every entry of a vocabulary
  std::int64_t zero_row = -1;              // this row starts as zeros, as fairseq's padding entry

  std::int64_t elements() const { return outputs * taps * inputs; }
};

class ParameterStore {
 public:
  using Handle = int;
  virtual ~ParameterStore() = default;

  /// Before allocate().
  Handle add(ParameterSpec spec) {
    specs_.push_back(std::move(spec));
    return static_cast<Handle>(specs_.size()) - 1;
  }
  const std::vector<ParameterSpec>& specs() const { return specs_; }
  std::int64_t parameters() const;

  /// Takes weights, gradients and `optimizer_states` state tensors from the ledger, in the formats
  /// of `precision` (sensitive parameters in FP32). Contents are indeterminate until initialize()
  /// or import.
  virtual void allocate(Ledger& ledger, TensorOps& ops, const PrecisionPolicy& precision,
                        int optimizer_states) = 0;
  /// Draws initial weights from `seed`; optimizer state becomes zero.
  virtual void initialize(std::uint32_t seed) = 0;

  /// A sensitive parameter as stored.
  virtual const float* values(Handle handle) const = 0;
  /// A tile of a weight in the layout that a kernel asks for: as many rows as the layout has
  /// outputs, from `first_output` on.
  virtual void pack(Handle handle, std::int64_t first_output, const WeightLayout& layout,
                    void* packed) = 0;
  void pack(Handle handle, const WeightLayout& layout, void* packed) {
    pack(handle, 0, layout, packed);
  }
  /// A whole compressed weight as its non-zeros, if they fit into `bytes`; false, with nothing
  /// written, if they don't, or if it is stored dense.
  virtual bool pack_non_zeros(Handle handle, const NonZeroLayout& layout, void* packed,
                              std::int64_t bytes) = 0;
  /// out (count, inputs) = rows of a matrix (outputs, 1, inputs), such as the embeddings of tokens.
  /// `rows` (count), on the device, are in [0, outputs). Workspace comes from `ledger`, which while
  /// decoding is not that of training.
  virtual void gather_rows(Ledger& ledger, Handle handle, const std::int32_t* rows,
                           std::int64_t count, Dtype to, void* out) = 0;

  /// Before a minibatch: the first gradients overwrite, later parts add. Where gradients come in
  /// tiles, the first of a minibatch come in rising order without gaps.
  virtual void begin_minibatch() = 0;
  /// The gradient of a tile; see pack().
  virtual void add_gradient(Handle handle, std::int64_t first_output, const float* gradient,
                            const WeightLayout& layout) = 0;
  void add_gradient(Handle handle, const float* gradient, const WeightLayout& layout) {
    add_gradient(handle, 0, gradient, layout);
  }
  /// Adds gradients (count, inputs) to rows of a matrix, which may repeat; the gradient of every
  /// other row is zero. A call sums what a row gets in FP32, in order of position, and rounds that
  /// sum once.
  virtual void add_row_gradients(Handle handle, const std::int32_t* rows, std::int64_t count,
                                 const void* gradients, Dtype from) = 0;
  /// Of a sensitive parameter, in canonical order.
  virtual void add_gradient(Handle handle, const float* gradient) = 0;
  virtual bool gradients_finite() = 0;

  virtual void update(const Optimizer& optimizer, const UpdateStep& step) = 0;

  /// Whether the pattern of non-zeros ever moves, and whether it does so after update number `step`
  /// (the first is 1).
  virtual bool pattern_moves() const = 0;
  virtual bool pattern_moves_after(std::int64_t step) const = 0;
  /// Moves it. What this takes from the ledger depends on the parameters' shapes only.
  virtual void move_pattern(std::int64_t step) = 0;

  /// Weights, optimizer state, pattern.
  virtual std::vector<StateTensor> state() = 0;
  /// What state() names has been read back. Throws InputError where it contradicts itself.
  virtual void state_restored() = 0;
  /// Sentences that a reader of the run's result must see.
  virtual std::vector<std::string> notes() const = 0;

  /// The dense weight or gradient in canonical order, in host memory, for export and tests.
  virtual void read_dense(Handle handle, float* to) const = 0;
  virtual void read_dense_gradient(Handle handle, float* to) const = 0;
  /// Whether only the parameter's non-zeros are stored.
  virtual bool compressed(Handle handle) const = 0;
  /// Which elements are stored, 1 or 0 each; the others are zero and stay so.
  virtual void read_pattern(Handle handle, std::uint8_t* stored) const = 0;
  /// Imports every weight: fill(h, to) writes the dense parameter h, in canonical order, and may be
  /// called several times for one. Throws InputError, with nothing changed, for weights that have
  /// more non-zeros than the store holds.
  using Fill = std::function<void(Handle handle, float* to)>;
  virtual void write_dense(const Fill& fill) = 0;

 protected:
  std::vector<ParameterSpec> specs_;
};

/// The value of element `index` (canonical order) of parameter `handle` under `spec.init`.
float initial_value(const ParameterSpec& spec, ParameterStore::Handle handle, std::int64_t index,
                    std::uint32_t seed);

}  // namespace memfloor

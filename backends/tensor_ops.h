// Ops over flat arrays: filling, adding, converting, (un)packing weights, optimizer updates.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "backends/non_zero_layout.h"
#include "backends/sparse_pattern.h"

namespace memfloor {

/// What every optimizer step is given, whatever its formula.
struct UpdateStep {
  float learning_rate = 0;
  float gradient_scale = 1;  // the stored gradient is the true one times this (the loss scale)
  // Of stochastic rounding: the run's seed, and how many updates there were before.
  std::uint32_t seed = 0;
  std::int64_t number = 0;
};

/// How an update rounds weights and state that are stored in 16 bits. Stochastic: to one of the two
/// neighbours, with the probabilities that make the mean exact, so that steps far below half a unit
/// in the last place are not lost. It leaves representable values alone and becomes infinite only
/// where rounding to nearest does.
enum class Rounding : std::uint8_t { nearest, stochastic };

/// The flat arrays of one update, all of `elements` elements.
struct UpdateArrays {
  static constexpr int kMaxStates = 2;

  std::int64_t elements = 0;
  Dtype weight_dtype = Dtype::f32, gradient_dtype = Dtype::f32, state_dtype = Dtype::f32;
  void* weights = nullptr;
  float* master = nullptr;  // if not null: the weights that move; `weights` is their rounded copy
  const void* gradient = nullptr;
  std::array<void*, kMaxStates> state{};
  Rounding rounding = Rounding::nearest;
  // Stochastic rounding draws by (update number, element, which array, stream): slabs have a stream
  // each, so that equal positions in different slabs round independently.
  std::uint32_t stream = 0;
};

/// SGD with momentum as PyTorch has it; L2 weight decay is coupled (added to the gradient):
/// g += decay w; m = momentum m + g; w -= rate (g + momentum m) with Nesterov, else rate m.
struct SgdRule {
  float momentum = 0;
  float weight_decay = 0;
  bool nesterov = false;
};

/// Adam (Kingma and Ba 2015) with decoupled weight decay, as fairseq has it: w -= rate decay w; m =
/// beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; w -= rate sqrt(1 - beta2^t) / (1 -
/// beta1^t) m / (sqrt(v) + epsilon), t being the update's number, the first 1.
struct AdamRule {
  float beta1 = 0.9f, beta2 = 0.999f;
  float epsilon = 1e-8f;
  float weight_decay = 0;
};

/// A stretch of device memory.
struct DeviceArray {
  void* data;
  std::int64_t bytes;
};

/// Gradients of a few 10^-6 are common and FP16's subnormals end at 6 * 10^-8, so FP16 states of
/// Adam are stored times this.
inline constexpr float kAdamStateScale = 4096;

class TensorOps {
 public:
  virtual ~TensorOps() = default;

  virtual void zero(void* data, std::int64_t bytes) = 0;
  virtual void copy(void* to, const void* from, std::int64_t bytes) = 0;
  /// Copies `rows` rows of `row_bytes` bytes between arrays whose rows begin `to_stride` and
  /// `from_stride` bytes apart.
  virtual void copy_rows(void* to, std::int64_t to_stride, const void* from,
                         std::int64_t from_stride, std::int64_t row_bytes, std::int64_t rows) = 0;
  /// Lets `fill` write `bytes` bytes of host memory that end up at `to` (which it is given directly
  /// where host and device memory are one). A backend that computes nothing does not call it.
  virtual void upload(void* to, std::int64_t bytes,
                      const std::function<void(void* host)>& fill) = 0;
  /// Copies to host memory. A backend that computes nothing leaves `to_host` as it is.
  virtual void download(void* to_host, const void* from, std::int64_t bytes) = 0;

  /// Calls `body` with one host pointer for each array, behind which lies what the array holds;
  /// what `body` leaves there is in the array afterwards. The pointers are the arrays' own where
  /// host and device memory are one. A backend that computes nothing does not call it.
  virtual void on_host(const std::vector<DeviceArray>& arrays,
                       const std::function<void(const std::vector<void*>& host)>& body) = 0;

  /// y += x
  virtual void add(const void* x, void* y, std::int64_t elements, Dtype dtype) = 0;

  /// False where an element is infinite or NaN; true for a backend that computes nothing.
  virtual bool all_finite(const void* x, std::int64_t elements, Dtype dtype) = 0;

  /// Dense canonical weights into a kernel's layout; padding becomes zero.
  virtual void pack_weights(const void* dense, Dtype from, const WeightLayout& layout,
                            void* packed) = 0;
  /// A kernel's gradient into the canonical order: gradient = dw, or += when `accumulate`.
  virtual void unpack_gradient(const float* dw, const WeightLayout& layout, void* gradient,
                               Dtype to, bool accumulate) = 0;

  /// Rows of compressed weights into a kernel's layout, as many as it has outputs, from
  /// `first_output` on; every other position becomes zero. `values` are the whole weight's.
  virtual void unpack_sparse(const void* values, Dtype from, const SparsePattern& pattern,
                             std::int64_t first_output, const WeightLayout& layout,
                             void* packed) = 0;
  /// The whole weight's non-zeros, as a kernel reads them.
  virtual void list_non_zeros(const void* values, Dtype from, const SparsePattern& pattern,
                              const NonZeroLayout& layout, void* packed) = 0;
  /// The non-zeros' part of a kernel's gradient of these rows: gradient = dw there, or += when
  /// `accumulate`. `gradient` is the whole weight's.
  virtual void gather_gradient(const float* dw, const WeightLayout& layout,
                               const SparsePattern& pattern, std::int64_t first_output,
                               void* gradient, Dtype to, bool accumulate) = 0;

  /// y (count, inputs) = the named rows of a matrix (outputs, inputs).
  virtual void gather_rows(const void* matrix, Dtype from, std::int64_t outputs,
                           std::int64_t inputs, const std::int32_t* rows, std::int64_t count,
                           Dtype to, void* y) = 0;
  /// x (count, inputs) is added to the named rows of a matrix (outputs, inputs), which may repeat:
  /// what one row gets is summed in FP32, in order of position, and then added to it.
  virtual void add_rows(const void* x, Dtype from, const std::int32_t* rows, std::int64_t count,
                        void* matrix, Dtype to, std::int64_t outputs, std::int64_t inputs,
                        void* scratch) = 0;
  /// The same for compressed matrices (taps 1); what falls on no stored position is dropped.
  virtual void gather_sparse_rows(const void* values, Dtype from, const SparsePattern& pattern,
                                  const std::int32_t* rows, std::int64_t count, Dtype to, void* y,
                                  void* scratch) = 0;
  virtual void add_sparse_rows(const void* x, Dtype from, const std::int32_t* rows,
                               std::int64_t count, void* values, Dtype to,
                               const SparsePattern& pattern, void* scratch) = 0;
  /// Bytes of these ops' scratch: which positions name a row, and where its values begin.
  static std::int64_t row_scratch(std::int64_t outputs, std::int64_t count) {
    return (2 * (outputs + 1) + count) * 4;
  }

  /// state[0] is the momentum. The arithmetic is FP32 whatever the arrays' formats are; what is
  /// stored in 16 bits is rounded once.
  virtual void sgd(const SgdRule& rule, const UpdateStep& step, const UpdateArrays& arrays) = 0;

  /// state[0] is m; state[1] is v where it is stored in FP32, else sqrt(v): a square underflows in
  /// 16 bits long before its root does. FP16 state holds both times kAdamStateScale.
  virtual void adam(const AdamRule& rule, const UpdateStep& step, const UpdateArrays& arrays) = 0;

  /// Interleaved RGB bytes to (value / 255 - mean) / deviation, channel by channel.
  virtual void images_to_tensor(const std::uint8_t* bytes, std::int64_t pixels,
                                const std::array<float, 3>& mean,
                                const std::array<float, 3>& deviation, Dtype dtype, void* y) = 0;
};

}  // namespace memfloor

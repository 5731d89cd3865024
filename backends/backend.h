// The op table of a device. An op is looked up by its descriptor, says by its plan what it needs,
// and runs on memory that the caller took from the ledger. Ops are made once and cached; what a
// library allocates for them (JIT code, caches) is not training memory and is reported as
// `library`.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "backends/attention.h"
#include "backends/batch_norm_relu.h"
#include "backends/classifier.h"
#include "backends/convolution.h"
#include "backends/dynamic_convolution.h"
#include "backends/group_norm_relu.h"
#include "backends/layer_norm.h"
#include "backends/projection.h"
#include "backends/sequence_ops.h"
#include "backends/smoothed_cross_entropy.h"
#include "backends/tensor_ops.h"

namespace memfloor {

class Backend {
 public:
  virtual ~Backend() = default;

  virtual const Convolution& convolution(const ConvolutionDescriptor& descriptor) = 0;
  virtual const BatchNormRelu& batch_norm_relu(const BatchNormReluDescriptor& descriptor) = 0;
  virtual const GroupNormRelu& group_norm_relu(const GroupNormReluDescriptor& descriptor) = 0;
  virtual const GlobalAveragePool& global_average_pool(
      const GlobalAveragePoolDescriptor& descriptor) = 0;
  virtual const Linear& linear(const LinearDescriptor& descriptor) = 0;
  virtual const SoftmaxCrossEntropy& softmax_cross_entropy(
      const SoftmaxCrossEntropyDescriptor& descriptor) = 0;
  virtual const Projection& projection(const ProjectionDescriptor& descriptor) = 0;
  virtual const LayerNorm& layer_norm(const LayerNormDescriptor& descriptor) = 0;
  virtual const DynamicConvolution& dynamic_convolution(
      const DynamicConvolutionDescriptor& descriptor) = 0;
  virtual const Attention& attention(const AttentionDescriptor& descriptor) = 0;
  virtual const SmoothedCrossEntropy& smoothed_cross_entropy(
      const SmoothedCrossEntropyDescriptor& descriptor) = 0;
  virtual SequenceOps& sequence_ops() = 0;
  virtual TensorOps& tensor_ops() = 0;

  /// False for a backend whose ops do nothing: its memory does not exist and must not be touched.
  virtual bool computes() const { return true; }

  /// What workspace bytes and result bits depend on: device, instruction set, library versions,
  /// threads.
  virtual nlohmann::json fingerprint() const = 0;
};

/// The CPU with `threads` threads; see backends/cpu/.
std::shared_ptr<Backend> make_cpu_backend(int threads);

/// The plans of `target`, none of its arithmetic; see backends/null/.
std::unique_ptr<Backend> make_null_backend(std::shared_ptr<Backend> target);

}  // namespace memfloor

// Ops that are being written; every function here gives way to its own file.
#include "backends/cpu/cpu_backend.h"
#include "core/error.h"

namespace memfloor::cpu {

std::unique_ptr<LayerNorm> make_layer_norm(const LayerNormDescriptor&, ThreadPool&) {
  throw Error("pending: layer norm");
}
std::unique_ptr<DynamicConvolution> make_dynamic_convolution(const DynamicConvolutionDescriptor&,
                                                             ThreadPool&) {
  throw Error("pending: dynamic convolution");
}
std::unique_ptr<Attention> make_attention(const AttentionDescriptor&, ThreadPool&) {
  throw Error("pending: attention");
}
std::unique_ptr<SmoothedCrossEntropy> make_smoothed_cross_entropy(
    const SmoothedCrossEntropyDescriptor&, ThreadPool&) {
  throw Error("pending: smoothed cross-entropy");
}
std::unique_ptr<SequenceOps> make_sequence_ops(ThreadPool&) { return nullptr; }

}  // namespace memfloor::cpu

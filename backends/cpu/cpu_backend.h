// The CPU's ops, made by the functions below; one file per op, named as in the other backends.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "backends/cpu/thread_pool.h"

namespace memfloor::cpu {

std::unique_ptr<Convolution> make_convolution(const ConvolutionDescriptor&, ThreadPool&);
std::unique_ptr<BatchNormRelu> make_batch_norm_relu(const BatchNormReluDescriptor&, ThreadPool&);
std::unique_ptr<GroupNormRelu> make_group_norm_relu(const GroupNormReluDescriptor&, ThreadPool&);
std::unique_ptr<GlobalAveragePool> make_global_average_pool(const GlobalAveragePoolDescriptor&,
                                                            ThreadPool&);
std::unique_ptr<Linear> make_linear(const LinearDescriptor&);
std::unique_ptr<SoftmaxCrossEntropy> make_softmax_cross_entropy(
    const SoftmaxCrossEntropyDescriptor&);
std::unique_ptr<Projection> make_projection(const ProjectionDescriptor&, ThreadPool&);
std::unique_ptr<LayerNorm> make_layer_norm(const LayerNormDescriptor&, ThreadPool&);
std::unique_ptr<DynamicConvolution> make_dynamic_convolution(const DynamicConvolutionDescriptor&,
                                                             ThreadPool&);
std::unique_ptr<Attention> make_attention(const AttentionDescriptor&, ThreadPool&);
std::unique_ptr<SmoothedCrossEntropy> make_smoothed_cross_entropy(
    const SmoothedCrossEntropyDescriptor&, ThreadPool&);
std::unique_ptr<SequenceOps> make_sequence_ops(ThreadPool&);
std::unique_ptr<TensorOps> make_tensor_ops(ThreadPool&);

}  // namespace memfloor::cpu

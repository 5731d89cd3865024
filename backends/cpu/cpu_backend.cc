#include "backends/cpu/cpu_backend.h"

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "backends/cpu/amx_weight_gradient.h"
#include "backends/cpu/onednn.h"
#include "backends/cpu/simd_convolution.h"
#include "core/error.h"

namespace memfloor {
namespace cpu {
namespace {

std::string instruction_set() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      return "sse41";
    case dnnl::cpu_isa::avx:
      return "avx";
    case dnnl::cpu_isa::avx2:
      return "avx2";
    case dnnl::cpu_isa::avx2_vnni:
      return "avx2_vnni";
    case dnnl::cpu_isa::avx512_core:
      return "avx512_core";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "avx512_core_amx";
    // Names that came and went between versions share the number.
    default:
      return "isa_" + std::to_string(static_cast<int>(dnnl::get_effective_cpu_isa()));
  }
}

// Which of our own convolution kernels this CPU runs.
std::string own_kernels() {
  return memfloor::concat(amx_available() ? "amx," : "", simd_convolution_vectors());
}

// Looks an op up by its descriptor, makes it at first use.
template <class Descriptor, class Op, class Make>
const Op& cached(std::map<Descriptor, std::unique_ptr<Op>>& cache, const Descriptor& d,
                 Make&& make) {
  auto& slot = cache[d];
  if (!slot) slot = make();
  return *slot;
}

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(int threads)
      : pool_(threads),
        sequence_ops_(make_sequence_ops(pool_)),
        tensor_ops_(make_tensor_ops(pool_)) {}

  const Convolution& convolution(const ConvolutionDescriptor& d) override {
    return cached(convolutions_, d, [&] { return make_convolution(d, pool_); });
  }
  const BatchNormRelu& batch_norm_relu(const BatchNormReluDescriptor& d) override {
    return cached(batch_norms_, d, [&] { return make_batch_norm_relu(d, pool_); });
  }
  const GroupNormRelu& group_norm_relu(const GroupNormReluDescriptor& d) override {
    return cached(group_norms_, d, [&] { return make_group_norm_relu(d, pool_); });
  }
  const GlobalAveragePool& global_average_pool(const GlobalAveragePoolDescriptor& d) override {
    return cached(pools_, d, [&] { return make_global_average_pool(d, pool_); });
  }
  const Linear& linear(const LinearDescriptor& d) override {
    return cached(linears_, d, [&] { return make_linear(d); });
  }
  const SoftmaxCrossEntropy& softmax_cross_entropy(
      const SoftmaxCrossEntropyDescriptor& d) override {
    return cached(losses_, d, [&] { return make_softmax_cross_entropy(d); });
  }
  const Projection& projection(const ProjectionDescriptor& d) override {
    return cached(projections_, d, [&] { return make_projection(d, pool_); });
  }
  const LayerNorm& layer_norm(const LayerNormDescriptor& d) override {
    return cached(layer_norms_, d, [&] { return make_layer_norm(d, pool_); });
  }
  const DynamicConvolution& dynamic_convolution(const DynamicConvolutionDescriptor& d) override {
    return cached(dynamic_convolutions_, d, [&] { return make_dynamic_convolution(d, pool_); });
  }
  const Attention& attention(const AttentionDescriptor& d) override {
    return cached(attentions_, d, [&] { return make_attention(d, pool_); });
  }
  const SmoothedCrossEntropy& smoothed_cross_entropy(
      const SmoothedCrossEntropyDescriptor& d) override {
    return cached(smoothed_losses_, d, [&] { return make_smoothed_cross_entropy(d, pool_); });
  }
  SequenceOps& sequence_ops() override { return *sequence_ops_; }
  TensorOps& tensor_ops() override { return *tensor_ops_; }

  nlohmann::json fingerprint() const override {
    const dnnl_version_t* version = dnnl_version();
    return {{"device", "cpu"},
            {"instruction_set", instruction_set()},
            {"onednn", memfloor::concat(version->major, ".", version->minor, ".", version->patch)},
            {"own_kernels", own_kernels()},
            {"threads", pool_.threads()}};
  }

 private:
  ThreadPool pool_;
  std::map<ConvolutionDescriptor, std::unique_ptr<Convolution>> convolutions_;
  std::map<BatchNormReluDescriptor, std::unique_ptr<BatchNormRelu>> batch_norms_;
  std::map<GroupNormReluDescriptor, std::unique_ptr<GroupNormRelu>> group_norms_;
  std::map<GlobalAveragePoolDescriptor, std::unique_ptr<GlobalAveragePool>> pools_;
  std::map<LinearDescriptor, std::unique_ptr<Linear>> linears_;
  std::map<SoftmaxCrossEntropyDescriptor, std::unique_ptr<SoftmaxCrossEntropy>> losses_;
  std::map<ProjectionDescriptor, std::unique_ptr<Projection>> projections_;
  std::map<LayerNormDescriptor, std::unique_ptr<LayerNorm>> layer_norms_;
  std::map<DynamicConvolutionDescriptor, std::unique_ptr<DynamicConvolution>> dynamic_convolutions_;
  std::map<AttentionDescriptor, std::unique_ptr<Attention>> attentions_;
  std::map<SmoothedCrossEntropyDescriptor, std::unique_ptr<SmoothedCrossEntropy>> smoothed_losses_;
  std::unique_ptr<SequenceOps> sequence_ops_;
  std::unique_ptr<TensorOps> tensor_ops_;
};

}  // namespace
}  // namespace cpu

std::shared_ptr<Backend> make_cpu_backend(int threads) {
  return std::make_shared<cpu::CpuBackend>(threads);
}

}  // namespace memfloor

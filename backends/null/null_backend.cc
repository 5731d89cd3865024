// The plans of a target backend without its arithmetic: what predicts memory byte for byte.
#include <map>
#include <nlohmann/json.hpp>

#include "backends/backend.h"

namespace memfloor {
namespace {

class NullConvolution final : public Convolution {
 public:
  explicit NullConvolution(const Convolution& target) { plan_ = target.plan(); }
  void forward(const void*, const PackedWeights&, const void*, void*, float*,
               void*) const override {}
  void backward_data(const void*, const PackedWeights&, void*, bool, const MaskedGradientSums*,
                     void*) const override {}
  void backward_weights(const void*, const void*, float*, void*) const override {}
};

class NullBatchNormRelu final : public BatchNormRelu {
 public:
  explicit NullBatchNormRelu(const BatchNormRelu& target) { plan_ = target.plan(); }
  void statistics(const void*, float*) const override {}
  void reduce(const float*, float*, float*, float*, float) const override {}
  void inverse_running_deviation(const float*, float*) const override {}
  void forward(const void*, const float*, const float*, const float*, const float*,
               void*) const override {}
  void mask_gradient(const MaskedGradientSums&, void*) const override {}
  void backward(const void*, const void*, const float*, const float*, const float*, const float*,
                void*, bool, float*, float*, void*) const override {}
};

class NullGroupNormRelu final : public GroupNormRelu {
 public:
  explicit NullGroupNormRelu(const GroupNormRelu& target) { plan_ = target.plan(); }
  void forward(const void*, const float*, const float*, void*, float*, void*) const override {}
  void backward(const void*, const void*, const float*, const float*, void*, void*, bool, float*,
                float*, void*) const override {}
};

class NullGlobalAveragePool final : public GlobalAveragePool {
 public:
  void forward(const void*, float*) const override {}
  void backward(const float*, void*) const override {}
};

class NullLinear final : public Linear {
 public:
  void forward(const float*, const float*, const float*, float*) const override {}
  void backward_data(const float*, const float*, float*) const override {}
  void backward_weights(const float*, const float*, float*, float*) const override {}
};

class NullSoftmaxCrossEntropy final : public SoftmaxCrossEntropy {
 public:
  void forward(const float*, const std::int32_t*, float*, LossSums*) const override {}
  void backward(const float*, const std::int32_t*, float, float*) const override {}
};

class NullProjection final : public Projection {
 public:
  explicit NullProjection(const Projection& target) { plan_ = target.plan(); }
  void forward(std::int64_t, const void*, const void*, const float*, bool, void*,
               void*) const override {}
  void backward_data(std::int64_t, const void*, const void*, void*, bool, void*) const override {}
  void backward_weights(std::int64_t, const void*, const void*, float*, float*,
                        void*) const override {}
};

class NullLayerNorm final : public LayerNorm {
 public:
  explicit NullLayerNorm(const LayerNorm& target) { plan_ = target.plan(); }
  void forward(std::int64_t, const void*, const float*, const float*, void*,
               float*) const override {}
  void backward(std::int64_t, const void*, const float*, const float*, const void*, void*, float*,
                float*, void*) const override {}
};

class NullDynamicConvolution final : public DynamicConvolution {
 public:
  explicit NullDynamicConvolution(const DynamicConvolution& target) : target_(target) {}
  std::int64_t saved_elements(const Sequences& s) const override {
    return target_.saved_elements(s);
  }
  std::int64_t forward_scratch(const Sequences& s) const override {
    return target_.forward_scratch(s);
  }
  std::int64_t backward_scratch(const Sequences& s) const override {
    return target_.backward_scratch(s);
  }
  void forward(const Sequences&, const Dropout&, const void*, const void*, void*, void*,
               void*) const override {}
  void backward(const Sequences&, const Dropout&, const void*, const void*, const void*,
                const void*, void*, void*, void*) const override {}

 private:
  const DynamicConvolution& target_;
};

class NullAttention final : public Attention {
 public:
  NullAttention(const AttentionDescriptor& d, const Attention& target)
      : Attention(d), target_(target) {}
  std::int64_t forward_scratch(const Sequences& q, const Sequences& k) const override {
    return target_.forward_scratch(q, k);
  }
  std::int64_t backward_scratch(const Sequences& q, const Sequences& k) const override {
    return target_.backward_scratch(q, k);
  }
  void forward(const Sequences&, const Sequences&, const Dropout&, const void*, const void*,
               const void*, void*, void*, void*) const override {}
  void backward(const Sequences&, const Sequences&, const Dropout&, const void*, const void*,
                const void*, const void*, const void*, void*, void*, void*, void*) const override {}

 private:
  const Attention& target_;
};

class NullSmoothedCrossEntropy final : public SmoothedCrossEntropy {
 public:
  void forward(std::int64_t, float*, const std::int32_t*, LossSums*) const override {}
  void backward(std::int64_t, const float*, const std::int32_t*, float, Dtype,
                void*) const override {}
};

class NullSequenceOps final : public SequenceOps {
 public:
  void dropout(const Sequences&, const Dropout&, std::int64_t, Dtype, const void*, void*) override {
  }
  void add_dropout(const Sequences&, const Dropout&, std::int64_t, Dtype, const void*, const void*,
                   void*) override {}
  void add_positions(const Sequences&, const Dropout&, float, std::int64_t, std::int64_t, Dtype,
                     void*) override {}
  void add_positions_backward(const Sequences&, const Dropout&, float, std::int64_t, Dtype,
                              void*) override {}
  void convolve_position(std::int64_t, std::int64_t, const DynamicConvolutionDescriptor&,
                         const void*, const void*, void*) override {}
  void mask_relu(std::int64_t, Dtype, const void*, void*) override {}
  void softmax(std::int64_t, std::int64_t, std::int64_t, Dtype, void*) override {}
  void softmax_backward(std::int64_t, std::int64_t, std::int64_t, Dtype, const void*,
                        void*) override {}
};

class NullTensorOps final : public TensorOps {
 public:
  void zero(void*, std::int64_t) override {}
  void copy(void*, const void*, std::int64_t) override {}
  void copy_rows(void*, std::int64_t, const void*, std::int64_t, std::int64_t,
                 std::int64_t) override {}
  void upload(void*, std::int64_t, const std::function<void(void*)>&) override {}
  void download(void*, const void*, std::int64_t) override {}
  void on_host(const std::vector<DeviceArray>&,
               const std::function<void(const std::vector<void*>&)>&) override {}
  void add(const void*, void*, std::int64_t, Dtype) override {}
  bool all_finite(const void*, std::int64_t, Dtype) override { return true; }
  void pack_weights(const void*, Dtype, const WeightLayout&, void*) override {}
  void unpack_gradient(const float*, const WeightLayout&, void*, Dtype, bool) override {}
  void unpack_sparse(const void*, Dtype, const SparsePattern&, std::int64_t, const WeightLayout&,
                     void*) override {}
  void list_non_zeros(const void*, Dtype, const SparsePattern&, const NonZeroLayout&,
                      void*) override {}
  void gather_gradient(const float*, const WeightLayout&, const SparsePattern&, std::int64_t, void*,
                       Dtype, bool) override {}
  void gather_rows(const void*, Dtype, std::int64_t, std::int64_t, const std::int32_t*,
                   std::int64_t, Dtype, void*) override {}
  void add_rows(const void*, Dtype, const std::int32_t*, std::int64_t, void*, Dtype, std::int64_t,
                std::int64_t, void*) override {}
  void gather_sparse_rows(const void*, Dtype, const SparsePattern&, const std::int32_t*,
                          std::int64_t, Dtype, void*, void*) override {}
  void add_sparse_rows(const void*, Dtype, const std::int32_t*, std::int64_t, void*, Dtype,
                       const SparsePattern&, void*) override {}
  void sgd(const SgdRule&, const UpdateStep&, const UpdateArrays&) override {}
  void adam(const AdamRule&, const UpdateStep&, const UpdateArrays&) override {}
  void images_to_tensor(const std::uint8_t*, std::int64_t, const std::array<float, 3>&,
                        const std::array<float, 3>&, Dtype, void*) override {}
};

class NullBackend final : public Backend {
 public:
  explicit NullBackend(std::shared_ptr<Backend> target) : target_(std::move(target)) {}

  const Convolution& convolution(const ConvolutionDescriptor& d) override {
    auto& slot = convolutions_[d];
    if (!slot) slot = std::make_unique<NullConvolution>(target_->convolution(d));
    return *slot;
  }
  const BatchNormRelu& batch_norm_relu(const BatchNormReluDescriptor& d) override {
    auto& slot = batch_norms_[d];
    if (!slot) slot = std::make_unique<NullBatchNormRelu>(target_->batch_norm_relu(d));
    return *slot;
  }
  const GroupNormRelu& group_norm_relu(const GroupNormReluDescriptor& d) override {
    auto& slot = group_norms_[d];
    if (!slot) slot = std::make_unique<NullGroupNormRelu>(target_->group_norm_relu(d));
    return *slot;
  }
  const GlobalAveragePool& global_average_pool(const GlobalAveragePoolDescriptor&) override {
    return pool_;
  }
  const Linear& linear(const LinearDescriptor&) override { return linear_; }
  const SoftmaxCrossEntropy& softmax_cross_entropy(const SoftmaxCrossEntropyDescriptor&) override {
    return loss_;
  }
  const Projection& projection(const ProjectionDescriptor& d) override {
    auto& slot = projections_[d];
    if (!slot) slot = std::make_unique<NullProjection>(target_->projection(d));
    return *slot;
  }
  const LayerNorm& layer_norm(const LayerNormDescriptor& d) override {
    auto& slot = layer_norms_[d];
    if (!slot) slot = std::make_unique<NullLayerNorm>(target_->layer_norm(d));
    return *slot;
  }
  const DynamicConvolution& dynamic_convolution(const DynamicConvolutionDescriptor& d) override {
    auto& slot = dynamic_convolutions_[d];
    if (!slot) slot = std::make_unique<NullDynamicConvolution>(target_->dynamic_convolution(d));
    return *slot;
  }
  const Attention& attention(const AttentionDescriptor& d) override {
    auto& slot = attentions_[d];
    if (!slot) slot = std::make_unique<NullAttention>(d, target_->attention(d));
    return *slot;
  }
  const SmoothedCrossEntropy& smoothed_cross_entropy(
      const SmoothedCrossEntropyDescriptor&) override {
    return smoothed_loss_;
  }
  SequenceOps& sequence_ops() override { return sequence_ops_; }
  TensorOps& tensor_ops() override { return tensor_ops_; }
  bool computes() const override { return false; }
  nlohmann::json fingerprint() const override { return target_->fingerprint(); }

 private:
  std::shared_ptr<Backend> target_;
  std::map<ConvolutionDescriptor, std::unique_ptr<NullConvolution>> convolutions_;
  std::map<BatchNormReluDescriptor, std::unique_ptr<NullBatchNormRelu>> batch_norms_;
  std::map<GroupNormReluDescriptor, std::unique_ptr<NullGroupNormRelu>> group_norms_;
  NullGlobalAveragePool pool_;
  NullLinear linear_;
  NullSoftmaxCrossEntropy loss_;
  std::map<ProjectionDescriptor, std::unique_ptr<NullProjection>> projections_;
  std::map<LayerNormDescriptor, std::unique_ptr<NullLayerNorm>> layer_norms_;
  std::map<DynamicConvolutionDescriptor, std::unique_ptr<NullDynamicConvolution>>
      dynamic_convolutions_;
  std::map<AttentionDescriptor, std::unique_ptr<NullAttention>> attentions_;
  NullSmoothedCrossEntropy smoothed_loss_;
  NullSequenceOps sequence_ops_;
  NullTensorOps tensor_ops_;
};

}  // namespace

std::unique_ptr<Backend> make_null_backend(std::shared_ptr<Backend> target) {
  return std::make_unique<NullBackend>(std::move(target));
}

}  // namespace memfloor

// The plans of a target backend without its arithmetic: what predicts memory byte for byte.
#include <map>
#include <nlohmann/json.hpp>

#include "backends/backend.h"

namespace memfloor {
namespace {

class NullConvolution final : public Convolution {
 public:
  explicit NullConvolution(const Convolution& target) { plan_ = target.plan(); }
  void forward(const void*, const void*, const void*, void*, float*, void*) const override {}
  void backward_data(const void*, const void*, void*, bool, const MaskedGradientSums*,
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

class NullTensorOps final : public TensorOps {
 public:
  void zero(void*, std::int64_t) override {}
  void copy(void*, const void*, std::int64_t) override {}
  void upload(void*, std::int64_t, const std::function<void(void*)>&) override {}
  void download(void*, const void*, std::int64_t) override {}
  void on_host(const std::vector<DeviceArray>&,
               const std::function<void(const std::vector<void*>&)>&) override {}
  void add(const void*, void*, std::int64_t, Dtype) override {}
  bool all_finite(const void*, std::int64_t, Dtype) override { return true; }
  void pack_weights(const void*, Dtype, const WeightLayout&, void*) override {}
  void unpack_gradient(const float*, const WeightLayout&, void*, Dtype, bool) override {}
  void unpack_sparse(const void*, Dtype, const SparsePattern&, const WeightLayout&,
                     void*) override {}
  void gather_gradient(const float*, const WeightLayout&, const SparsePattern&, void*, Dtype,
                       bool) override {}
  void sgd(const SgdRule&, const UpdateStep&, const UpdateArrays&) override {}
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
  NullTensorOps tensor_ops_;
};

}  // namespace

std::unique_ptr<Backend> make_null_backend(std::shared_ptr<Backend> target) {
  return std::make_unique<NullBackend>(std::move(target));
}

}  // namespace memfloor

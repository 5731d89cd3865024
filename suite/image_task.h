// Image classification: a wide ResNet on a data set of images.
#pragma once

#include "models/wide_resnet.h"
#include "suite/run_spec.h"
#include "suite/task.h"

namespace memfloor {

/// How many samples there are, which decides the sizes of the last minibatch and evaluation part.
struct DataSize {
  std::int64_t train = 50000, test = 10000;
};

class ImageTask final : public Task {
 public:
  /// `spec` is validated; `data` may be null where nothing is computed. Throws InputError for a
  /// spec that asks for more samples than there are.
  ImageTask(const RunSpec& spec, const ImageFormat& format, const DataSize& size,
            std::shared_ptr<const ImageDataset> data);

  std::int64_t minibatches_per_epoch() const override;
  Minibatch minibatch(std::int64_t number) const override;
  /// Two of each, so that a prediction sees that they are alike.
  std::vector<Minibatch> every_shape() const override;
  std::string shape_name(const Minibatch& minibatch) const override;
  std::int64_t loss_terms(const Minibatch& minibatch) const override { return minibatch.samples; }
  std::vector<std::int64_t> sample_sizes(const Minibatch& minibatch) const override {
    return std::vector<std::int64_t>(static_cast<std::size_t>(minibatch.samples), 1);
  }
  std::int64_t part_limit() const override { return part_ == batch_ ? 0 : part_; }

  std::vector<Part> evaluation_parts() const override;
  std::vector<Part> recalibration_parts() const override;
  std::string shape_name(const Part& part) const override;
  std::int64_t loss_terms(const Part& part) const override { return part.count; }

  std::unique_ptr<Network> make_network(ParameterStore& parameters, RunningStatistics& running,
                                        const PrecisionPolicy& precision) const override;
  const char* unit() const override { return "images"; }
  nlohmann::json quality(const Totals& totals) const override;
  std::string quality_text(const nlohmann::json& quality) const override;
  nlohmann::json final_quality(Trainer&) const override;
  nlohmann::json provenance() const override;

  const WideResNetConfig& config() const { return config_; }
  const DataSize& size() const { return size_; }
  const std::shared_ptr<const ImageDataset>& data() const { return data_; }

 private:
  WideResNetConfig config_;
  DataSize size_;
  std::shared_ptr<const ImageDataset> data_;
  std::int64_t batch_, part_, recalibrated_;
};

/// The network of such a task; tests run its model on images of their own.
class ImageNetwork final : public Network {
 public:
  ImageNetwork(const WideResNetConfig& config, const ImageDataset* data, ParameterStore& parameters,
               RunningStatistics& running);
  const Chain& chain() const override { return model_.chain(); }
  std::vector<Block> run(Context& context, const PartRequest& request,
                         const std::optional<LossTarget>& loss) const override;
  const WideResNet& model() const { return model_; }

 private:
  ImageFormat format_;
  const ImageDataset* data_;
  WideResNet model_;
};

/// The network of `spec`, for images of `format`.
WideResNetConfig network_of(const RunSpec& spec, const ImageFormat& format = {});

}  // namespace memfloor

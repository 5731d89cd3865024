#include "suite/image_task.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "models/layers.h"
#include "suite/models.h"

namespace memfloor {
namespace {

// Of CIFAR-10's training pixels, on [0, 1], as the DSR reference code states them.
constexpr std::array<float, 3> kMean{125.3f / 255, 123.0f / 255, 113.9f / 255};
constexpr std::array<float, 3> kDeviation{63.0f / 255, 62.1f / 255, 66.7f / 255};

// [0, samples) in parts of at most `part` > 0.
std::vector<Part> cut(std::int64_t samples, std::int64_t part) {
  std::vector<Part> parts;
  for (std::int64_t first = 0; first < samples; first += part)
    parts.push_back({first, std::min(part, samples - first)});
  return parts;
}

}  // namespace

WideResNetConfig network_of(const RunSpec& spec, const ImageFormat& format) {
  WideResNetConfig config = make_wide_resnet_config(spec.model);
  config.norm = make_norm(spec.norm);
  config.image_height = format.height, config.image_width = format.width;
  config.image_channels = format.channels, config.classes = format.classes;
  return config;
}

ImageTask::ImageTask(const RunSpec& spec, const ImageFormat& format, const DataSize& size,
                     std::shared_ptr<const ImageDataset> data)
    : config_(network_of(spec, format)),
      size_(size),
      data_(std::move(data)),
      batch_(spec.batch_size),
      part_(spec.microbatch),
      recalibrated_(spec.bn_recalibrate) {
  if (recalibrated_ > size_.train)
    throw InputError(concat("--bn-recalibrate ", recalibrated_,
                            " is more than the training set has: ", size_.train, " samples"));
  if (spec.test_images > 0) size_.test = std::min(size_.test, spec.test_images);
  MEMFLOOR_CHECK(!data_ || (data_->size(Split::train) == size_.train &&
                            data_->size(Split::test) >= size_.test),
                 "the data set does not have the size that was stated");
}

std::int64_t ImageTask::minibatches_per_epoch() const {
  const std::int64_t batch = std::min(batch_, size_.train);
  return (size_.train + batch - 1) / batch;
}

Minibatch ImageTask::minibatch(std::int64_t number) const {
  const std::int64_t batch = std::min(batch_, size_.train), each = minibatches_per_epoch();
  const std::int64_t start = number % each * batch;
  return {number, number / each, start, std::min(batch, size_.train - start)};
}

std::vector<Minibatch> ImageTask::every_shape() const {
  std::vector<Minibatch> all;
  std::vector<std::int64_t> sizes{std::min(batch_, size_.train)};
  if (const std::int64_t rest = size_.train % sizes[0]) sizes.push_back(rest);
  for (const std::int64_t samples : sizes)
    for (std::int64_t repeat = 0; repeat < 2; ++repeat) all.push_back({repeat, 0, 0, samples});
  return all;
}

std::string ImageTask::shape_name(const Minibatch& minibatch) const {
  return concat("minibatch/", minibatch.samples);
}

std::string ImageTask::shape_name(const Part& part) const {
  return concat("evaluation/", part.count);
}

std::vector<Part> ImageTask::evaluation_parts() const { return cut(size_.test, part_); }

std::vector<Part> ImageTask::recalibration_parts() const { return cut(recalibrated_, part_); }

std::unique_ptr<Network> ImageTask::make_network(ParameterStore& parameters,
                                                 RunningStatistics& running,
                                                 const PrecisionPolicy&) const {
  return std::make_unique<ImageNetwork>(config_, data_.get(), parameters, running);
}

nlohmann::json ImageTask::quality(const Totals& totals) const {
  return {{"test_accuracy", totals.accuracy()}, {"test_loss", totals.mean_loss()}};
}

std::string ImageTask::quality_text(const nlohmann::json& quality) const {
  char text[96];
  std::snprintf(text, sizeof text, "test accuracy %.2f %%, test loss %.4f",
                100 * quality["test_accuracy"].get<double>(), quality["test_loss"].get<double>());
  return text;
}

nlohmann::json ImageTask::final_quality(Trainer&) const { return nlohmann::json::object(); }

nlohmann::json ImageTask::provenance() const {
  return data_ ? data_->provenance() : nlohmann::json();
}

ImageNetwork::ImageNetwork(const WideResNetConfig& config, const ImageDataset* data,
                           ParameterStore& parameters, RunningStatistics& running)
    : format_{config.image_height, config.image_width, config.image_channels, config.classes},
      data_(data),
      model_(config, parameters, running) {}

// Bytes and labels come from the loader, the network's input from the bytes, which then go.
std::vector<Block> ImageNetwork::run(Context& context, const PartRequest& request,
                                     const std::optional<LossTarget>& loss) const {
  TensorOps& ops = context.backend.tensor_ops();
  const Shape shape{request.count, format_.height, format_.width, format_.channels};
  const Dtype dtype = context.precision.activation;
  std::vector<Block> staged;
  staged.push_back(context.ledger.allocate(request.count * 4, Category::input, "labels"));
  const Block& labels = staged[0];
  Value images;
  {
    const Block bytes = context.ledger.allocate(shape.elements(), Category::input, "image bytes");
    // Labels lie beside the bytes on their way: one walk over the samples fills both.
    ops.upload(labels.data(), labels.bytes(), [&](void* to_labels) {
      ops.upload(bytes.data(), bytes.bytes(), [&](void* to_images) {
        load_part(*data_, request, static_cast<std::uint8_t*>(to_images),
                  static_cast<std::int32_t*>(to_labels));
      });
    });
    images = context.make_value(shape, dtype, "images", false);
    ops.images_to_tensor(static_cast<const std::uint8_t*>(bytes.data()), shape.elements() / 3,
                         kMean, kDeviation, dtype, images->data.raw());
  }
  Value logits = model_.forward(context, std::move(images));
  if (loss)
    softmax_cross_entropy(context, std::move(logits),
                          static_cast<const std::int32_t*>(labels.data()), loss->sums,
                          loss->gradient_scale);
  return staged;
}

}  // namespace memfloor

// Normalisation and ReLU, whichever normalisation a model was made with.
#pragma once

#include <string>
#include <variant>

#include "models/group_norm_relu.h"
#include "models/layers.h"

namespace memfloor {

enum class Norm {
  batch,  // over a part of the minibatch; running statistics for evaluation
  group,  // over each image by itself, in training and evaluation alike
};

class NormReluLayer {
 public:
  NormReluLayer() = default;
  /// Registers `name`.weight (ones) and `name`.bias (zeros), and for batch norm running statistics.
  NormReluLayer(Norm norm, ParameterStore& store, RunningStatistics& running,
                const std::string& name, std::int64_t channels) {
    if (norm == Norm::batch)
      layer_ = BatchNormReluLayer(store, running, name, channels);
    else
      layer_ = GroupNormReluLayer(store, name, channels);
  }

  /// x (n, h, w, channels) -> the same shape.
  Value operator()(Context& context, Value x) const {
    return std::visit([&](const auto& layer) { return layer(context, std::move(x)); }, layer_);
  }

  /// Whether the convolution that makes x shall leave channel statistics.
  bool reads_statistics() const { return std::holds_alternative<BatchNormReluLayer>(layer_); }

 private:
  std::variant<BatchNormReluLayer, GroupNormReluLayer> layer_;
};

}  // namespace memfloor

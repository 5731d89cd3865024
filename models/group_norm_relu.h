// Group norm + ReLU as a layer: the batch-independent alternative to batch norm.
#pragma once

#include <string>

#include "engine/context.h"

namespace memfloor {

struct GroupNormReluLayer {
  /// Our choice. Wu and He find 16 channels a group, or 32 groups, best in networks of 64 and more
  /// channels; ours begin with 16, which would then be a single group. Divides every width of a
  /// wide ResNet.
  static constexpr std::int64_t kGroupChannels = 8;

  GroupNormReluLayer() = default;
  /// Registers `name`.weight (ones) and `name`.bias (zeros). `channels` is a multiple of
  /// kGroupChannels.
  GroupNormReluLayer(ParameterStore& store, std::string name, std::int64_t channels);

  /// x (n, h, w, channels) -> the same shape, the same bits in every pass. Keeps x, y and two
  /// numbers for every image and group for backward.
  Value operator()(Context& context, Value x) const;

  std::string name;
  std::int64_t channels = 0;
  ParameterStore::Handle gamma = 0, beta = 0;
};

}  // namespace memfloor

// Wide residual networks for small images (Zagoruyko and Komodakis 2016), pre-activation, as the
// DSR reference code has them: convolutions without bias; where a block changes shape, the shortcut
// is a 1x1 convolution of the activated input.
#pragma once

#include <string>
#include <vector>

#include "models/norm_relu.h"

namespace memfloor {

struct WideResNetConfig {
  int depth = 28;  // 6 n + 4
  int width = 2;   // widths 16, 16 k, 32 k, 64 k
  int classes = 10;
  Norm norm = Norm::batch;
  int image_height = 32, image_width = 32, image_channels = 3;
};

class WideResNet {
 public:
  /// Registers every parameter; throws InputError for a depth that is not 6 n + 4 or a width
  /// below 1.
  WideResNet(const WideResNetConfig& config, ParameterStore& store, RunningStatistics& running);
  WideResNet(const WideResNet&) = delete;  // the chain and the tape point into the layers
  WideResNet& operator=(const WideResNet&) = delete;

  /// images (n, h, w, 3) in the activation format -> logits (n, classes) f32.
  Value forward(Context& context, Value images) const;

  struct Block {
    NormReluLayer bn1, bn2;
    ConvolutionLayer conv1, conv2, shortcut;
    bool has_shortcut = false;

    /// x -> (conv1's output, what is added to conv2's).
    Values first_half(Context& context, Values inputs) const;
    Values second_half(Context& context, Values inputs) const;
  };
  const std::vector<Block>& blocks() const { return blocks_; }

  /// The stem, two units a block (batch norm, ReLU, convolution each), the head.
  const Chain& chain() const { return chain_; }

 private:
  void make_chain(const WideResNetConfig& config);

  ConvolutionLayer stem_;
  std::vector<Block> blocks_;
  NormReluLayer bn_;
  LinearLayer fc_;
  Chain chain_;
};

}  // namespace memfloor

// Layers: an op of the backend, its parameters, and its entry on the tape. Written once for every
// pass: training, replay and evaluation.
#pragma once

#include <string>

#include "engine/context.h"

namespace memfloor {

/// Square convolution without bias, NHWC, padding kernel / 2.
struct ConvolutionLayer {
  ConvolutionLayer() = default;
  /// Registers `name`.weight (OIHW in files), drawn from normal(0, sqrt(2 / (kernel^2 * out))).
  ConvolutionLayer(ParameterStore& store, std::string name, std::int64_t channels_in,
                   std::int64_t channels_out, int kernel, int stride, bool compressible);

  struct Options {
    Value residual;           // added to the output; null: none
    bool statistics = false;  // leave channel statistics for the batch norm that follows
  };
  /// x (n, h, w, channels_in) -> (n, h', w', channels_out). Keeps x for backward.
  Value operator()(Context& context, Value x, Options options) const;

  std::string name;
  std::int64_t channels_in = 0, channels_out = 0;
  int kernel = 3, stride = 1;
  ParameterStore::Handle weight = 0;
};

/// Batch normalisation and ReLU as one op.
struct BatchNormReluLayer {
  BatchNormReluLayer() = default;
  /// Registers `name`.weight (ones) and `name`.bias (zeros), and running statistics under `name`.
  BatchNormReluLayer(ParameterStore& store, RunningStatistics& running, std::string name,
                     std::int64_t channels);

  /// x (n, h, w, channels) -> the same shape. Keeps x, y and the statistics for backward.
  Value operator()(Context& context, Value x) const;

  std::string name;
  std::int64_t channels = 0;
  ParameterStore::Handle gamma = 0, beta = 0;
  RunningStatistics::Handle running = 0;

 private:
  NormalizationStatistics batch_statistics(Context& context, const BatchNormRelu& op,
                                           const Value& x) const;
};

/// (n, h, w, c) in any format -> (n, c) f32.
Value global_average_pool(Context& context, Value x, const std::string& name);

/// (n, inputs) f32 -> (n, outputs) f32, with bias.
struct LinearLayer {
  LinearLayer() = default;
  /// Registers `name`.weight, uniform within 1 / sqrt(inputs), and `name`.bias (zeros).
  LinearLayer(ParameterStore& store, std::string name, std::int64_t inputs, std::int64_t outputs);
  /// Keeps x for backward.
  Value operator()(Context& context, Value x) const;

  std::string name;
  std::int64_t inputs = 0, outputs = 0;
  ParameterStore::Handle weight = 0, bias = 0;
};

/// Adds the part's losses and hits to `sums` (device memory). Backward starts from
/// (softmax - onehot) * gradient_scale, where the scale is loss scale / samples of the whole
/// minibatch. Keeps the probabilities; `labels` (n) must outlive backward.
void softmax_cross_entropy(Context& context, Value logits, const std::int32_t* labels,
                           LossSums* sums, float gradient_scale);

}  // namespace memfloor

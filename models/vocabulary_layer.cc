#include "models/vocabulary_layer.h"

#include <algorithm>
#include <cmath>

namespace memfloor {

VocabularyLayer::VocabularyLayer(ParameterStore& store, std::string name_, std::int64_t entries_,
                                 std::int64_t channels_)
    : name(std::move(name_)), entries(entries_), channels(channels_) {
  const float deviation = 1 / std::sqrt(static_cast<float>(channels));
  weight = store.add({.name = name + ".weight",
                      .outputs = entries,
                      .inputs = channels,
                      .init = {Initializer::Kind::normal, deviation},
                      .compressible = true,
                      .export_shape = {entries, channels},
                      .vocabulary = true});
}

void VocabularyLayer::logits(Context& context, std::int64_t rows, const void* x, Dtype dtype,
                             float* logits) const {
  const Block tile = context.workspace(rows * std::min(kTile, entries) * 4, "tile of logits");
  for (std::int64_t first = 0; first < entries; first += kTile) {
    const std::int64_t width = std::min(kTile, entries - first);
    const Product product(context, name, weight, {channels, width, dtype, Dtype::f32}, first);
    product.forward(context, rows, x, nullptr, false, tile.data());
    context.backend.tensor_ops().copy_rows(logits + first, entries * 4, tile.data(), width * 4,
                                           width * 4, rows);
  }
}

void VocabularyLayer::backward(Context& context, std::int64_t rows, const void* x, Dtype dtype,
                               const void* dlogits, void* dx) const {
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  const Block tile =
      context.workspace(rows * std::min(kTile, entries) * size, "tile of logits' gradient");
  for (std::int64_t first = 0; first < entries; first += kTile) {
    const std::int64_t width = std::min(kTile, entries - first);
    const Product product(context, name, weight, {channels, width, dtype, Dtype::f32}, first);
    context.backend.tensor_ops().copy_rows(tile.data(), width * size,
                                           static_cast<const char*>(dlogits) + first * size,
                                           entries * size, width * size, rows);
    product.backward_weights(context, rows, x, tile.data(), nullptr);
    product.backward_data(context, rows, tile.data(), dx, first > 0);
  }
}

void VocabularyLayer::loss(Context& context, Value x, const std::int32_t* labels, LossSums* sums,
                           float gradient_scale, const LossOptions& options) const {
  const std::int64_t rows = x->data.shape()[0];
  const Dtype dtype = x->data.dtype();
  const SmoothedCrossEntropy& op = context.backend.smoothed_cross_entropy(
      {entries, context.pass == Pass::evaluation ? 0 : options.smoothing});

  if (context.tape && options.chunk == 0) {
    const Value log_probabilities =
        context.make_value({rows, entries}, Dtype::f32, "log-probabilities", false);
    auto* const values = log_probabilities->data.data<float>();
    logits(context, rows, x->data.raw(), dtype, values);
    op.forward(rows, values, labels, sums);
    consume(x);
    context.record({x, log_probabilities}, [this, &op, rows, dtype, x, log_probabilities, labels,
                                            gradient_scale](Context& ctx) {
      auto* const data = log_probabilities->data.data<float>();
      op.backward(rows, data, labels, gradient_scale, dtype, data);
      backward(ctx, rows, x->data.raw(), dtype, data, gradient_target(ctx, x->gradient).data);
    });
    return;
  }

  const bool trains = context.tape != nullptr;
  void* const dx = trains ? gradient_target(context, consume(x)).data : nullptr;
  const std::int64_t row_bytes = channels * static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t chunk = options.chunk == 0 ? rows : std::min(options.chunk, rows);
  const Block block = context.workspace(chunk * entries * 4, "logits");
  auto* const values = static_cast<float*>(block.data());
  for (std::int64_t first = 0; first < rows; first += chunk) {
    const std::int64_t count = std::min(chunk, rows - first);
    const void* const x_rows = static_cast<const char*>(x->data.raw()) + first * row_bytes;
    logits(context, count, x_rows, dtype, values);
    op.forward(count, values, labels + first, sums);
    if (!trains) continue;
    op.backward(count, values, labels + first, gradient_scale, dtype, values);
    backward(context, count, x_rows, dtype, values, static_cast<char*>(dx) + first * row_bytes);
  }
}

}  // namespace memfloor

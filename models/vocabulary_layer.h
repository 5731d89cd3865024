// The output matrix of a language model and its label-smoothed cross-entropy, as one op. The matrix
// is used a tile of rows at a time: no dense copy of the whole one ever exists, nor of its
// gradient.
#pragma once

#include <string>

#include "models/projection_layer.h"

namespace memfloor {

struct VocabularyLayer {
  /// Rows of the matrix that are unpacked at a time.
  static constexpr std::int64_t kTile = 512;

  VocabularyLayer() = default;
  /// Registers `name`.weight (entries, channels), drawn from normal(0, channels^-1/2).
  VocabularyLayer(ParameterStore& store, std::string name, std::int64_t entries,
                  std::int64_t channels);

  /// logits (rows, entries) f32 = x w^T.
  void logits(Context& context, std::int64_t rows, const void* x, Dtype dtype, float* logits) const;

  /// Rows whose logits exist at a time, and how the labels are smoothed.
  struct LossOptions {
    std::int64_t chunk = 0;  // 0: all rows
    float smoothing = 0;     // in evaluation there is none
  };
  /// Adds the losses of x (rows, channels) against `labels` (rows) to `sums` (device memory);
  /// backward starts from their gradient times `gradient_scale`. The last op of a model.
  ///
  /// With chunk 0 training keeps x and the log-probabilities of every row for backward. Else it
  /// walks the rows in chunks and makes the gradients of x and of the matrix then and there: since
  /// the scale is known, nothing has to wait for backward, and nothing is kept but x's gradient.
  void loss(Context& context, Value x, const std::int32_t* labels, LossSums* sums,
            float gradient_scale, const LossOptions& options) const;

  std::string name;
  std::int64_t entries = 0, channels = 0;
  ParameterStore::Handle weight = 0;

 private:
  /// From dlogits (rows, entries) of `dtype`: the matrix's gradient; dx is overwritten.
  void backward(Context& context, std::int64_t rows, const void* x, Dtype dtype,
                const void* dlogits, void* dx) const;
};

}  // namespace memfloor

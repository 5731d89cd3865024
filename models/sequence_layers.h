// Layers on the rows of sentences: embeddings, layer normalisation, dynamic convolution, attention.
#pragma once

#include <string>

#include "models/projection_layer.h"

namespace memfloor {

/// A table with one row for every vocabulary entry, scaled by sqrt(channels), plus sinusoidal
/// positions, then dropout.
struct EmbeddingLayer {
  /// The vocabulary's padding symbol, as in fairseq; positions count from behind it.
  static constexpr std::int64_t kPaddingEntry = 1, kFirstPosition = kPaddingEntry + 1;

  EmbeddingLayer() = default;
  /// Registers `name`.weight (entries, channels), drawn from normal(0, channels^-1/2); the padding
  /// symbol's row is zero.
  EmbeddingLayer(ParameterStore& store, std::string name, std::int64_t entries,
                 std::int64_t channels);

  /// Text -> (rows, channels) in the activation format. Keeps nothing. The sentences' first rows
  /// are at `position`.
  Value operator()(Context& context, Value text, const Dropout& dropout,
                   std::int64_t position = 0) const;

  std::string name;
  std::int64_t channels = 0;
  ParameterStore::Handle weight = 0;
};

struct LayerNormLayer {
  LayerNormLayer() = default;
  /// Registers `name`.weight (ones) and `name`.bias (zeros).
  LayerNormLayer(ParameterStore& store, std::string name, std::int64_t channels);

  /// (rows, channels) -> the same shape. Keeps x and two numbers a row.
  Value operator()(Context& context, Value x) const;

  std::string name;
  std::int64_t channels = 0;
  ParameterStore::Handle gamma = 0, beta = 0;
};

/// What a causal convolution has read of sentences that grow a position at a time.
struct PastInputs {
  Tensor slots;               // (sentences, kernel, channels): of position p in slot p % kernel
  std::int64_t position = 0;  // of the next input
};

/// The dynamic convolution with the product that predicts its kernels, softmax included.
struct DynamicConvolutionLayer {
  DynamicConvolutionLayer() = default;
  /// Registers `name`.weight.weight (heads * kernel, channels), uniform within channels^-1/2.
  DynamicConvolutionLayer(ParameterStore& store, std::string name,
                          const DynamicConvolutionDescriptor& descriptor);

  /// x (rows, channels) -> the same shape; `dropout` is that of the kernels. Keeps x, the kernels
  /// after the softmax and what the method keeps. The descriptor's format is x's.
  ///
  /// With `past`, in evaluation, x is one further position of every sentence.
  Value operator()(Context& context, Value x, const Dropout& dropout,
                   PastInputs* past = nullptr) const;

  std::string name;
  DynamicConvolutionDescriptor descriptor;
  ParameterStore::Handle weight = 0;
};

/// Of the sentences of q over those of k and v, sentence by sentence; see Attention. Keeps q, k, v
/// and the probabilities. The descriptor's format is q's.
Value attend(Context& context, AttentionDescriptor descriptor, Value q, Value k, Value v,
             const Dropout& dropout, const std::string& name);

}  // namespace memfloor

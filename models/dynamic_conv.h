// The translation model with dynamic convolutions of Wu, Fan, Baevski, Dauphin and Auli, "Pay less
// attention with lightweight and dynamic convolutions" (ICLR 2019), as fairseq's
// `lightconv_iwslt_de_en` has it: an encoder and a decoder of convolution and feed-forward blocks,
// each followed by its residual sum and layer normalisation; no gated units; three separate
// vocabulary matrices.
//
// Sentences lie in the rows of a value without padding, so what is padded by other programs cannot
// change anything here. Parameters are named as in a PyTorch program whose layers are `src`, `tgt`,
// `out` (vocabulary matrices), `enc.I` and `dec.I` with `lin1`, `conv.weight`, `lin2`, `ln1`,
// `fc1`, `fc2`, `ln2`, and in the decoder `q`, `kk`, `v`, `o`, `ln3` for its attention.
#pragma once

#include <string>
#include <vector>

#include "models/sequence_layers.h"
#include "models/vocabulary_layer.h"

namespace memfloor {

/// The default is the published model for the vocabularies of IWSLT'14 German-English.
struct DynamicConvConfig {
  std::int64_t source_vocabulary = 8848, target_vocabulary = 6632;
  std::int64_t channels = 512, feed_forward = 1024;
  std::int64_t heads = 4;                                      // of convolutions and of attention
  std::vector<int> encoder_kernels{3, 7, 15, 31, 31, 31, 31};  // one a layer, odd
  std::vector<int> decoder_kernels{3, 7, 15, 31, 31, 31};
  DynamicConvolutionMethod method = DynamicConvolutionMethod::band;
  float dropout = 0.3f;            // of embeddings and of what is added to residuals
  float attention_dropout = 0.1f;  // of attention's probabilities
  float kernel_dropout = 0.1f;     // of the convolutions' kernels
  VocabularyLayer::LossOptions loss{.chunk = 0, .smoothing = 0.1f};
};

/// What the decoder remembers of hypotheses between target positions. Those of one sentence lie in
/// neighbouring rows, in the sentences' order; a sentence may have any number of them.
struct DecoderState {
  struct Layer {
    Value keys, values;  // of the encoder's output
    PastInputs past;     // of the convolution
  };
  std::vector<Layer> layers;
  std::shared_ptr<const Sequences> hypotheses;  // the rows of every sentence's

  std::int64_t rows() const { return hypotheses->rows(); }

  /// Row i becomes what was row from[i]; rows must still lie in the sentences' order.
  void reorder(Context& context, const std::vector<std::int32_t>& from);
};

class DynamicConv {
 public:
  /// Registers every parameter; throws InputError for sizes that make no model.
  DynamicConv(const DynamicConvConfig& config, ParameterStore& store);
  DynamicConv(const DynamicConv&) = delete;  // the chain and the tape point into the layers
  DynamicConv& operator=(const DynamicConv&) = delete;

  /// Two texts of equally many sentences -> (rows of target_text, channels): row by row what the
  /// decoder makes of the sentence so far.
  Value forward(Context& context, Value source_text, Value target_text) const;

  /// `labels`: the entry that follows each row of target_text. See VocabularyLayer::loss.
  void loss(Context& context, Value x, const std::int32_t* labels, LossSums* sums,
            float gradient_scale) const {
    out_.loss(context, std::move(x), labels, sums, gradient_scale, config_.loss);
  }

  /// x (rows, channels) -> (rows, target vocabulary) f32.
  Value logits(Context& context, Value x) const;

  // Incremental decoding, in evaluation.
  /// Encodes the sentences; each has one hypothesis, which is empty.
  DecoderState start_decoding(Context& context, Value source_text) const;
  /// Appends a token to every hypothesis (`tokens`, in device memory); the logits (hypotheses,
  /// target vocabulary) of what may follow.
  Value decode(Context& context, DecoderState& state, const std::int32_t* tokens) const;

  /// A residual block ends in the middle of a unit: units begin with the layer normalisation of a
  /// sum and end with a matrix product, so that what crosses their borders was costly to make and
  /// what is made again inside them was not. A layer of the encoder has four (normalise and lin1;
  /// convolution and lin2; normalise and fc1; fc2), one of the decoder two more (normalise and q,
  /// k, v; attention and o); the last unit is the decoder's last normalisation. The embeddings
  /// belong to the first units.
  const Chain& chain() const { return chain_; }

 private:
  /// A dropout and its number among the model's.
  struct Site {
    float probability = 0;
    std::uint32_t number = 0;
    Dropout of(const Context& context) const { return context.dropout(probability, number); }
  };

  /// A layer of the encoder or, with attention, of the decoder. The functions are what units do;
  /// each takes values in the order of its comment and hands on those that follow (...).
  struct Layer {
    /// x -> lin1's output, x, ...
    Values start(Context& context, Value x, Values rest) const;
    /// lin1's output, x, ... -> residual sum, ...
    Values convolve(Context& context, Values in, PastInputs* past = nullptr) const;
    /// Residual sum, encoder's output -> q, k, v, normalised sum, encoder's output if `handed_on`.
    Values query(Context& context, Values in, bool handed_on) const;
    /// q, k, v, x, ... -> residual sum, ...
    Values attend(Context& context, Values in) const;
    /// Residual sum, ... -> fc1's output, normalised sum, ...
    Values widen(Context& context, Values in) const;
    /// fc1's output, x, ... -> residual sum, ...
    Values narrow(Context& context, Values in) const;

    ProjectionLayer lin1, lin2, fc1, fc2;
    DynamicConvolutionLayer conv;
    LayerNormLayer ln1, ln2;
    Site conv_dropout, lin2_dropout, fc2_dropout;
    // Of the decoder only.
    bool attends = false;
    ProjectionLayer q, k, v, o;
    LayerNormLayer ln3;
    AttentionDescriptor attention;
    Site attention_dropout, o_dropout;
  };

  Layer make_layer(ParameterStore& store, const std::string& name, int kernel, bool decoder);
  Site next_site(float probability) { return {probability, sites_++}; }
  void make_chain();
  void add_layer(const Layer& layer, bool last, Unit first);

  DynamicConvConfig config_;
  std::uint32_t sites_ = 0;
  EmbeddingLayer src_, tgt_;
  Site src_dropout_, tgt_dropout_;
  std::vector<Layer> encoder_, decoder_;
  VocabularyLayer out_;
  Chain chain_;
  std::size_t encoder_units_ = 0;  // the chain's first ones; its last layer norm is not in them
};

/// The value that stands for a text whose entries are `tokens` (rows), in device memory.
Value make_text(std::shared_ptr<const Sequences> sequences, const std::int32_t* tokens);

}  // namespace memfloor

#include "models/dynamic_conv.h"

#include <algorithm>
#include <iterator>

namespace memfloor {

namespace {

// Of a sentence, where what is saved grows with its length: that of the suite's memory runs.
constexpr std::int64_t kTypicalLength = 25;

void check(const DynamicConvConfig& config) {
  const auto refuse = [](auto&&... why) { throw InputError(concat("DynamicConv: ", why...)); };
  if (config.channels < 4 || config.channels % 2 != 0)
    refuse("channels are an even number from 4 on, not ", config.channels);
  if (config.heads < 1 || config.channels % config.heads != 0)
    refuse("heads divide the ", config.channels, " channels, which ", config.heads, " does not");
  if (config.feed_forward < 1) refuse("the feed-forward blocks have no channels");
  if (config.source_vocabulary < 4 || config.target_vocabulary < 4)
    refuse("a vocabulary has four special entries and therefore at least 4, not ",
           std::min(config.source_vocabulary, config.target_vocabulary));
  if (config.encoder_kernels.empty() || config.decoder_kernels.empty())
    refuse("encoder and decoder have at least one layer");
  for (const int kernel : config.encoder_kernels)
    if (kernel < 1 || kernel % 2 == 0)
      refuse("kernels of the encoder are odd, so that they have a middle: not ", kernel);
  for (const int kernel : config.decoder_kernels)
    if (kernel < 1) refuse("a kernel's width is at least 1, not ", kernel);
  if (config.loss.chunk < 0) refuse("the loss is computed for at least one row at a time");
}

// What a unit makes, then what it hands on untouched: its inputs from `first` on.
Values with_rest(Values made, Values in, std::size_t first) {
  made.insert(made.end(), std::make_move_iterator(in.begin() + static_cast<std::ptrdiff_t>(first)),
              std::make_move_iterator(in.end()));
  return made;
}

}  // namespace

Value make_text(std::shared_ptr<const Sequences> sequences, const std::int32_t* tokens) {
  auto text = std::make_shared<ValueNode>();
  text->sequences = std::move(sequences);
  text->tokens = tokens;
  return text;
}

DynamicConv::DynamicConv(const DynamicConvConfig& config, ParameterStore& store) : config_(config) {
  check(config);
  src_ = EmbeddingLayer(store, "src", config.source_vocabulary, config.channels);
  tgt_ = EmbeddingLayer(store, "tgt", config.target_vocabulary, config.channels);
  src_dropout_ = next_site(config.dropout);
  tgt_dropout_ = next_site(config.dropout);
  for (const int kernel : config.encoder_kernels)
    encoder_.push_back(make_layer(store, "enc." + std::to_string(encoder_.size()), kernel, false));
  for (const int kernel : config.decoder_kernels)
    decoder_.push_back(make_layer(store, "dec." + std::to_string(decoder_.size()), kernel, true));
  out_ = VocabularyLayer(store, "out", config.target_vocabulary, config.channels);
  make_chain();
}

DynamicConv::Layer DynamicConv::make_layer(ParameterStore& store, const std::string& name,
                                           int kernel, bool decoder) {
  const std::int64_t channels = config_.channels;
  const auto square = [&](const char* suffix) {
    return ProjectionLayer(store, name + suffix, channels, channels);
  };
  Layer layer;
  layer.lin1 = square(".lin1");
  layer.conv = DynamicConvolutionLayer(store, name + ".conv",
                                       {.channels = channels,
                                        .heads = config_.heads,
                                        .kernel = kernel,
                                        .left = decoder ? kernel - 1 : kernel / 2,
                                        .method = config_.method});
  layer.lin2 = square(".lin2");
  layer.ln1 = LayerNormLayer(store, name + ".ln1", channels);
  layer.conv_dropout = next_site(config_.kernel_dropout);
  layer.lin2_dropout = next_site(config_.dropout);
  layer.attends = decoder;
  if (decoder) {
    layer.q = square(".q"), layer.k = square(".kk"), layer.v = square(".v");
    layer.o = square(".o");
    layer.ln3 = LayerNormLayer(store, name + ".ln3", channels);
    layer.attention = {.channels = channels, .heads = config_.heads};
    layer.attention_dropout = next_site(config_.attention_dropout);
    layer.o_dropout = next_site(config_.dropout);
  }
  layer.fc1 = ProjectionLayer(store, name + ".fc1", channels, config_.feed_forward);
  layer.fc2 = ProjectionLayer(store, name + ".fc2", config_.feed_forward, channels);
  layer.ln2 = LayerNormLayer(store, name + ".ln2", channels);
  layer.fc2_dropout = next_site(config_.dropout);
  return layer;
}

Value DynamicConv::forward(Context& context, Value source_text, Value target_text) const {
  Values in;
  in.push_back(std::move(source_text));
  in.push_back(std::move(target_text));
  return context.retention.run(context, chain_, std::move(in))[0];
}

Value DynamicConv::logits(Context& context, Value x) const {
  const std::int64_t rows = x->data.shape()[0];
  const Value y = context.make_value({rows, out_.entries}, Dtype::f32, "logits", false);
  out_.logits(context, rows, x->data.raw(), x->data.dtype(), y->data.data<float>());
  return y;
}

// ---- what units do
//
// Handles are moved along so that a value dies with its last reader.

Values DynamicConv::Layer::start(Context& context, Value x, Values rest) const {
  Value projected = lin1(context, x, {});
  return with_rest({std::move(projected), std::move(x)}, std::move(rest), 0);
}

Values DynamicConv::Layer::convolve(Context& context, Values in, PastInputs* past) const {
  Value y = conv(context, std::move(in[0]), conv_dropout.of(context), past);
  Value sum = lin2(context, std::move(y),
                   {.residual = std::move(in[1]), .dropout = lin2_dropout.of(context)});
  return with_rest({std::move(sum)}, std::move(in), 2);
}

Values DynamicConv::Layer::query(Context& context, Values in, bool handed_on) const {
  Value x = ln1(context, std::move(in[0]));
  Value queries = q(context, x, {});
  Value keys = k(context, in[1], {});
  Value values = v(context, in[1], {});
  return with_rest({std::move(queries), std::move(keys), std::move(values), std::move(x)},
                   std::move(in), handed_on ? 1 : 2);
}

Values DynamicConv::Layer::attend(Context& context, Values in) const {
  Value y = memfloor::attend(context, attention, std::move(in[0]), std::move(in[1]),
                             std::move(in[2]), attention_dropout.of(context), o.name);
  Value sum =
      o(context, std::move(y), {.residual = std::move(in[3]), .dropout = o_dropout.of(context)});
  return with_rest({std::move(sum)}, std::move(in), 4);
}

Values DynamicConv::Layer::widen(Context& context, Values in) const {
  Value x = (attends ? ln3 : ln1)(context, std::move(in[0]));
  Value h = fc1(context, x, {.relu = true});
  return with_rest({std::move(h), std::move(x)}, std::move(in), 1);
}

Values DynamicConv::Layer::narrow(Context& context, Values in) const {
  Value sum =
      fc2(context, std::move(in[0]),
          {.after_relu = true, .residual = std::move(in[1]), .dropout = fc2_dropout.of(context)});
  return with_rest({std::move(sum)}, std::move(in), 2);
}

// ---- the chain

// Between layers: (sum, target text) in the encoder, (sum, encoder's output) in the decoder. A
// layer normalisation saves its input and two numbers, a product its input.
void DynamicConv::make_chain() {
  const std::int64_t channels = config_.channels;
  for (std::size_t i = 0; i < encoder_.size(); ++i) {
    const Layer& layer = encoder_[i];
    Unit first{layer.lin1.name, false, {}, 2 * channels + 2, {1}};
    if (i == 0) {
      first.forward = [this, &layer](Context& context, Values in) {
        Value x = src_(context, std::move(in[0]), src_dropout_.of(context));
        return layer.start(context, std::move(x), {std::move(in[1])});
      };
      first.saved_elements = channels, first.summands = {0, 1};
    } else {
      first.forward = [&before = encoder_[i - 1], &layer](Context& context, Values in) {
        Value x = before.ln2(context, std::move(in[0]));
        return layer.start(context, std::move(x), {std::move(in[1])});
      };
    }
    add_layer(layer, i + 1 == encoder_.size(), std::move(first));
  }
  encoder_units_ = chain_.size();
  for (std::size_t i = 0; i < decoder_.size(); ++i) {
    const Layer& layer = decoder_[i];
    Unit first{layer.lin1.name, false, {}, 2 * channels + 2, {1}};
    if (i == 0) {
      first.forward = [this, &layer](Context& context, Values in) {
        Value encoded = encoder_.back().ln2(context, std::move(in[0]));
        Value x = tgt_(context, std::move(in[1]), tgt_dropout_.of(context));
        return layer.start(context, std::move(x), {std::move(encoded)});
      };
      first.saved_elements += channels;  // the encoder's output, which all layers read
    } else {
      first.forward = [&before = decoder_[i - 1], &layer](Context& context, Values in) {
        Value x = before.ln2(context, std::move(in[0]));
        return layer.start(context, std::move(x), {std::move(in[1])});
      };
    }
    add_layer(layer, i + 1 == decoder_.size(), std::move(first));
  }
  chain_.push_back({decoder_.back().ln2.name, true,
                    [this](Context& context, Values in) {
                      return Values{decoder_.back().ln2(context, std::move(in[0]))};
                    },
                    channels + 2});
}

void DynamicConv::add_layer(const Layer& layer, bool last, Unit first) {
  const std::int64_t channels = config_.channels, heads = config_.heads;
  const std::int64_t kernel = layer.conv.descriptor.kernel;
  const bool band = config_.method == DynamicConvolutionMethod::band;
  chain_.push_back(std::move(first));

  chain_.push_back(
      {layer.lin2.name,
       false,
       [&layer](Context& context, Values in) { return layer.convolve(context, std::move(in)); },
       2 * channels + heads * kernel +
           (band ? channels + heads * (kTypicalLength + kernel - 1) : 0),
       {1, 2}});
  if (layer.attends) {
    chain_.push_back({layer.q.name, false,
                      [&layer, last](Context& context, Values in) {
                        return layer.query(context, std::move(in), !last);
                      },
                      2 * channels + 2});
    chain_.push_back(
        {layer.o.name,
         false,
         [&layer](Context& context, Values in) { return layer.attend(context, std::move(in)); },
         4 * channels + heads * kTypicalLength,
         {3, 4}});
  }
  chain_.push_back(
      {layer.fc1.name,
       false,
       [&layer](Context& context, Values in) { return layer.widen(context, std::move(in)); },
       2 * channels + 2,
       {1}});
  chain_.push_back(
      {layer.fc2.name,
       true,
       [&layer](Context& context, Values in) { return layer.narrow(context, std::move(in)); },
       config_.feed_forward,
       {1, 2}});
}

}  // namespace memfloor

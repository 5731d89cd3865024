#include "models/sequence_layers.h"

#include <cmath>

namespace memfloor {
namespace {

// What an op's forward leaves for its backward beside its output; empty until it has run.
using Saved = std::shared_ptr<Tensor>;

// An activation if the op is being recorded.
Tensor saved_tensor(Ledger& ledger, const Shape& shape, Dtype dtype, bool recorded,
                    const std::string& label) {
  return Tensor(ledger, shape, dtype, recorded ? Category::activation : Category::transient, label);
}

}  // namespace

// ---- embedding

EmbeddingLayer::EmbeddingLayer(ParameterStore& store, std::string name_, std::int64_t entries,
                               std::int64_t channels_)
    : name(std::move(name_)), channels(channels_) {
  const float deviation = 1 / std::sqrt(static_cast<float>(channels));
  weight = store.add({.name = name + ".weight",
                      .outputs = entries,
                      .inputs = channels,
                      .init = {Initializer::Kind::normal, deviation},
                      .compressible = true,
                      .export_shape = {entries, channels},
                      .vocabulary = true,
                      .zero_row = kPaddingEntry});
}

Value EmbeddingLayer::operator()(Context& context, Value text, const Dropout& dropout,
                                 std::int64_t position) const {
  const std::int64_t rows = text->sequences->rows();
  const float scale = std::sqrt(static_cast<float>(channels));
  const Value y = context.compute_value(
      {rows, channels}, context.precision.activation, name, {},
      [this, text, rows, scale, dropout, position](Context& ctx, ValueNode& out) {
        ctx.parameters.gather_rows(ctx.ledger, weight, text->tokens, rows, out.data.dtype(),
                                   out.data.raw());
        ctx.backend.sequence_ops().add_positions(*text->sequences, dropout, scale,
                                                 kFirstPosition + position, channels,
                                                 out.data.dtype(), out.data.raw());
      });
  y->sequences = text->sequences;
  if (context.tape)
    context.record({}, [this, text, rows, scale, dropout, dy_slot = y->gradient](Context& ctx) {
      const Tensor dy = take_gradient(dy_slot);
      ctx.backend.sequence_ops().add_positions_backward(*text->sequences, dropout, scale, channels,
                                                        dy.dtype(), dy.raw());
      ctx.parameters.add_row_gradients(weight, text->tokens, rows, dy.raw(), dy.dtype());
    });
  return y;
}

// ---- layer normalisation

LayerNormLayer::LayerNormLayer(ParameterStore& store, std::string name_, std::int64_t channels_)
    : name(std::move(name_)), channels(channels_) {
  const auto add = [&](const char* suffix, float value) {
    return store.add({.name = name + suffix,
                      .outputs = channels,
                      .init = {Initializer::Kind::constant, value},
                      .sensitive = true,
                      .export_shape = {channels}});
  };
  gamma = add(".weight", 1);
  beta = add(".bias", 0);
}

Value LayerNormLayer::operator()(Context& context, Value x) const {
  const Shape shape = x->data.shape();
  const LayerNorm& op = context.backend.layer_norm({channels, x->data.dtype()});
  const auto statistics = std::make_shared<Tensor>();
  const bool recorded = context.tape != nullptr;

  const Value y = context.compute_value(
      shape, x->data.dtype(), name, {x},
      [this, &op, x, statistics, recorded](Context& ctx, ValueNode& out) {
        const std::int64_t rows = out.data.shape()[0];
        *statistics =
            saved_tensor(ctx.ledger, {rows, 2}, Dtype::f32, recorded, "statistics of " + name);
        op.forward(rows, x->data.raw(), ctx.parameters.values(gamma), ctx.parameters.values(beta),
                   out.data.raw(), statistics->data<float>());
      });
  y->sequences = x->sequences;

  if (recorded) {
    context.need(y);  // the statistics come with it
    consume(x);
    context.record({x}, [this, &op, x, statistics, dy_slot = y->gradient](Context& ctx) {
      Tensor dy = take_gradient(dy_slot);
      {
        const Block gradients = ctx.workspace(2 * channels * 4, "parameter gradients of " + name);
        const Block scratch = ctx.workspace(op.plan().backward_scratch, "scratch of " + name);
        auto* const dgamma = static_cast<float*>(gradients.data());
        float* const dbeta = dgamma + channels;
        op.backward(dy.shape()[0], x->data.raw(), statistics->data<float>(),
                    ctx.parameters.values(gamma), dy.raw(), dy.raw(), dgamma, dbeta,
                    scratch.data());
        ctx.parameters.add_gradient(gamma, dgamma);
        ctx.parameters.add_gradient(beta, dbeta);
      }
      if (x->gradient) give_gradient(ctx, x->gradient, std::move(dy));
    });
  }
  return y;
}

// ---- dynamic convolution

DynamicConvolutionLayer::DynamicConvolutionLayer(ParameterStore& store, std::string name_,
                                                 const DynamicConvolutionDescriptor& descriptor_)
    : name(std::move(name_)), descriptor(descriptor_) {
  const std::int64_t channels = descriptor.channels;
  const std::int64_t outputs = descriptor.heads * descriptor.kernel;
  const float bound = 1 / std::sqrt(static_cast<float>(channels));
  weight = store.add({.name = name + ".weight.weight",
                      .outputs = outputs,
                      .inputs = channels,
                      .init = {Initializer::Kind::uniform, bound},
                      .compressible = true,
                      .export_shape = {outputs, channels}});
}

Value DynamicConvolutionLayer::operator()(Context& context, Value x, const Dropout& dropout,
                                          PastInputs* past) const {
  const Shape shape = x->data.shape();
  DynamicConvolutionDescriptor d = descriptor;
  d.dtype = x->data.dtype();
  const DynamicConvolution& op = context.backend.dynamic_convolution(d);
  const Product predict(context, name, weight, {d.channels, d.heads * d.kernel, d.dtype, d.dtype});
  const std::int64_t multiply_adds = shape.elements() * d.kernel;

  const Value kernels = context.compute_value(
      {shape[0], predict.d.outputs}, d.dtype, "kernels of " + name, {x},
      [d, predict, x](Context& ctx, ValueNode& out) {
        const std::int64_t rows = out.data.shape()[0];
        predict.forward(ctx, rows, x->data.raw(), nullptr, false, out.data.raw());
        ctx.backend.sequence_ops().softmax(rows, d.heads, d.kernel, d.dtype, out.data.raw());
      });

  if (past) {
    const Value y = context.make_value(shape, d.dtype, name);
    const std::int64_t row_bytes = d.channels * static_cast<std::int64_t>(size_of(d.dtype));
    char* const slot =
        static_cast<char*>(past->slots.raw()) + past->position % d.kernel * row_bytes;
    context.backend.tensor_ops().copy_rows(slot, d.kernel * row_bytes, x->data.raw(), row_bytes,
                                           row_bytes, shape[0]);
    context.backend.sequence_ops().convolve_position(
        shape[0], past->position++, d, past->slots.raw(), kernels->data.raw(), y->data.raw());
    context.count_forward(multiply_adds);
    y->sequences = x->sequences;
    return y;
  }

  const auto saved = std::make_shared<Tensor>();
  const bool recorded = context.tape != nullptr;
  const Value y = context.compute_value(
      shape, d.dtype, name, {x, kernels},
      [this, &op, x, kernels, saved, recorded, dropout, multiply_adds](Context& ctx,
                                                                       ValueNode& out) {
        const Sequences& sentences = *x->sequences;
        if (const std::int64_t elements = op.saved_elements(sentences))
          *saved =
              saved_tensor(ctx.ledger, {elements}, out.data.dtype(), recorded, "saved by " + name);
        const Block scratch = ctx.workspace(op.forward_scratch(sentences), "scratch of " + name);
        op.forward(sentences, dropout, x->data.raw(), kernels->data.raw(), saved->raw(),
                   out.data.raw(), scratch.data());
        ctx.count_forward(multiply_adds);
      });
  y->sequences = x->sequences;

  if (recorded) {
    if (op.saved_elements(*x->sequences) > 0) context.need(y);  // what is saved comes with it
    consume(x);
    context.record({x, kernels}, [this, &op, d, predict, x, kernels, saved, dropout, multiply_adds,
                                  dy_slot = y->gradient](Context& ctx) {
      Tensor dy = take_gradient(dy_slot);
      const Sequences& sentences = *x->sequences;
      const std::int64_t rows = sentences.rows();
      Tensor dx(ctx.ledger, dy.shape(), d.dtype, Category::transient,
                "gradient of input of " + name);
      const Tensor dkernels(ctx.ledger, kernels->data.shape(), d.dtype, Category::transient,
                            "gradient of kernels of " + name);
      {
        const Block scratch = ctx.workspace(op.backward_scratch(sentences), "scratch of " + name);
        op.backward(sentences, dropout, x->data.raw(), kernels->data.raw(), saved->raw(), dy.raw(),
                    dx.raw(), dkernels.raw(), scratch.data());
        ctx.work.backward += 2 * multiply_adds;
      }
      dy = Tensor(), *saved = Tensor();
      ctx.backend.sequence_ops().softmax_backward(rows, d.heads, d.kernel, d.dtype,
                                                  kernels->data.raw(), dkernels.raw());
      predict.backward_weights(ctx, rows, x->data.raw(), dkernels.raw(), nullptr);
      if (!x->gradient) return;
      predict.backward_data(ctx, rows, dkernels.raw(), dx.raw(), true);
      give_gradient(ctx, x->gradient, std::move(dx));
    });
  }
  return y;
}

// ---- attention

Value attend(Context& context, AttentionDescriptor descriptor, Value q, Value k, Value v,
             const Dropout& dropout, const std::string& name) {
  descriptor.dtype = q->data.dtype();
  const Attention& op = context.backend.attention(descriptor);
  const Shape shape = q->data.shape();
  const std::int64_t probability_count = op.probabilities(*q->sequences, *k->sequences);
  // Of the scores, and of the weighted sums.
  const std::int64_t multiply_adds =
      2 * probability_count * (descriptor.channels / descriptor.heads);

  const auto probabilities = std::make_shared<Tensor>();
  const bool recorded = context.tape != nullptr;
  const Value y = context.compute_value(
      shape, descriptor.dtype, name, {q, k, v},
      [&op, q, k, v, probabilities, recorded, probability_count, dropout, name, multiply_adds](
          Context& ctx, ValueNode& out) {
        *probabilities = saved_tensor(ctx.ledger, {probability_count}, out.data.dtype(), recorded,
                                      "probabilities of " + name);
        const Block scratch =
            ctx.workspace(op.forward_scratch(*q->sequences, *k->sequences), "scratch of " + name);
        op.forward(*q->sequences, *k->sequences, dropout, q->data.raw(), k->data.raw(),
                   v->data.raw(), probabilities->raw(), out.data.raw(), scratch.data());
        ctx.count_forward(multiply_adds);
      });
  y->sequences = q->sequences;

  if (recorded) {
    context.need(y);  // the probabilities come with it
    consume(q), consume(k), consume(v);
    context.record({q, k, v}, [&op, q, k, v, probabilities, dropout, name, multiply_adds,
                               dy_slot = y->gradient](Context& ctx) {
      Tensor dy = take_gradient(dy_slot);
      const auto gradient = [&](const Value& of, const char* what) {
        return Tensor(ctx.ledger, of->data.shape(), of->data.dtype(), Category::transient,
                      what + name);
      };
      Tensor dk = gradient(k, "gradient of keys of "), dv = gradient(v, "gradient of values of ");
      {
        const Block scratch =
            ctx.workspace(op.backward_scratch(*q->sequences, *k->sequences), "scratch of " + name);
        op.backward(*q->sequences, *k->sequences, dropout, q->data.raw(), k->data.raw(),
                    v->data.raw(), probabilities->raw(), dy.raw(), dy.raw(), dk.raw(), dv.raw(),
                    scratch.data());
        ctx.work.backward += 2 * multiply_adds;
      }
      give_gradient(ctx, v->gradient, std::move(dv));
      give_gradient(ctx, k->gradient, std::move(dk));
      give_gradient(ctx, q->gradient, std::move(dy));
    });
  }
  return y;
}

}  // namespace memfloor

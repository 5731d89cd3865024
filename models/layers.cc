#include "models/layers.h"

#include <algorithm>
#include <cmath>

namespace memfloor {

// ---- convolution

ConvolutionLayer::ConvolutionLayer(ParameterStore& store, std::string name_,
                                   std::int64_t channels_in_, std::int64_t channels_out_,
                                   int kernel_, int stride_, bool compressible)
    : name(std::move(name_)),
      channels_in(channels_in_),
      channels_out(channels_out_),
      kernel(kernel_),
      stride(stride_) {
  const float deviation = std::sqrt(2.0f / static_cast<float>(kernel * kernel * channels_out));
  weight = store.add({name + ".weight",
                      channels_out,
                      kernel * kernel,
                      channels_in,
                      {Initializer::Kind::normal, deviation},
                      compressible,
                      false,
                      {channels_out, channels_in, kernel, kernel}});
}

namespace {

// Room for what a batch norm's backward needs of its output's gradient; see MaskedGradientSums.
Tensor gradient_sums(Context& context, const ValueNode& y) {
  const Shape& shape = y.data.shape();
  return Tensor(context.ledger, {shape[0], 2, shape[3]}, Dtype::f32, Category::workspace,
                "sums of a gradient");
}

// Weights as a kernel reads them, alive for one call: all of them, or the non-zeros of compressed
// ones where the kernel can and they take no more room.
struct LayerWeights {
  Block block;
  bool non_zeros = false;

  LayerWeights(Context& context, const ConvolutionLayer& layer, const WeightLayout& dense,
               const NonZeroLayout& sparse)
      : block(context.workspace(dense.bytes(), "packed " + layer.name)) {
    ParameterStore& store = context.parameters;
    non_zeros =
        sparse.cells > 0 && store.pack_non_zeros(layer.weight, sparse, block.data(), dense.bytes());
    if (!non_zeros) store.pack(layer.weight, dense, block.data());
  }
  PackedWeights packed() const { return {block.data(), non_zeros}; }
};

// Enough for either form of the weights: which it is moves with their pattern, the bytes must not.
Block convolution_scratch(Context& context, const ConvolutionLayer& layer, std::int64_t dense,
                          std::int64_t non_zeros) {
  const bool either = context.parameters.compressed(layer.weight);
  return context.workspace(either ? std::max(dense, non_zeros) : dense, "scratch of " + layer.name);
}

void backward_weights(Context& context, const ConvolutionLayer& layer, const Convolution& op,
                      const void* x, const void* dy) {
  const ConvolutionPlan& plan = op.plan();
  const Block dw = context.workspace(plan.gradient.bytes(), "weight gradient of " + layer.name);
  {
    const Block scratch =
        context.workspace(plan.backward_weights_scratch, "scratch of " + layer.name);
    op.backward_weights(x, dy, static_cast<float*>(dw.data()), scratch.data());
  }
  context.parameters.add_gradient(layer.weight, static_cast<const float*>(dw.data()),
                                  plan.gradient);
  context.work.backward += plan.multiply_adds;
}

void backward_data(Context& context, const ConvolutionLayer& layer, const Convolution& op,
                   const void* dy, const Value& x) {
  const ConvolutionPlan& plan = op.plan();
  const GradientTarget target = gradient_target(context, x->gradient);
  MaskedGradientSums masked;
  const bool masks = x->normalized_by && target.last;
  if (masks) {
    NormalizedBy& norm = *x->normalized_by;
    norm.gradient_sums = gradient_sums(context, *x);
    masked = {norm.input->data.raw(), x->data.raw(), norm.mean->data<float>(),
              norm.gradient_sums.data<float>()};
  }
  const LayerWeights weights(context, layer, plan.backward_weights, plan.backward_non_zeros);
  const Block scratch = convolution_scratch(context, layer, plan.backward_data_scratch,
                                            plan.backward_data_non_zeros_scratch);
  op.backward_data(dy, weights.packed(), target.data, target.accumulate, masks ? &masked : nullptr,
                   scratch.data());
  context.work.backward += plan.multiply_adds;
}

}  // namespace

Value ConvolutionLayer::operator()(Context& context, Value x, Options options) const {
  const Shape in = x->data.shape();
  const ConvolutionDescriptor d{in[0],        in[1],  in[2],  channels_in,
                                channels_out, kernel, stride, x->data.dtype()};
  const Convolution& op = context.backend.convolution(d);

  // A replay's batch norms have their statistics from the first pass.
  const bool statistics = options.statistics && context.pass == Pass::first;
  Values inputs;  // the residual first: its own making needs more memory than what follows it
  if (options.residual) inputs.push_back(options.residual);
  inputs.push_back(x);
  const Value y = context.compute_value(
      {d.images, d.out_height(), d.out_width(), channels_out}, d.dtype, name, std::move(inputs),
      [this, &op, x, residual = options.residual, statistics](Context& ctx, ValueNode& out) {
        if (statistics)
          out.statistics = Tensor(ctx.ledger, {out.data.shape()[0], 2, channels_out}, Dtype::f32,
                                  Category::workspace, "channel statistics of " + name);
        const ConvolutionPlan& plan = op.plan();
        const LayerWeights weights(ctx, *this, plan.forward_weights, plan.forward_non_zeros);
        const Block scratch =
            convolution_scratch(ctx, *this, plan.forward_scratch, plan.forward_non_zeros_scratch);
        op.forward(x->data.raw(), weights.packed(), residual ? residual->data.raw() : nullptr,
                   out.data.raw(), static_cast<float*>(out.statistics.raw()), scratch.data());
        ctx.count_forward(plan.multiply_adds);
      });

  if (context.tape) {
    consume(x);
    context.record(
        {x}, [this, &op, x, dy_slot = y->gradient,
              residual = options.residual ? consume(options.residual) : nullptr](Context& ctx) {
          Tensor dy = take_gradient(dy_slot);
          backward_weights(ctx, *this, op, x->data.raw(), dy.raw());
          if (x->gradient) backward_data(ctx, *this, op, dy.raw(), x);
          if (residual) give_gradient(ctx, residual, std::move(dy));
        });
  }
  return y;
}

// ---- batch norm + ReLU

BatchNormReluLayer::BatchNormReluLayer(ParameterStore& store, RunningStatistics& running_,
                                       std::string name_, std::int64_t channels_)
    : name(std::move(name_)), channels(channels_) {
  gamma = store.add({name + ".weight",
                     channels,
                     1,
                     1,
                     {Initializer::Kind::constant, 1},
                     false,
                     true,
                     {channels}});
  beta = store.add(
      {name + ".bias", channels, 1, 1, {Initializer::Kind::constant, 0}, false, true, {channels}});
  running = running_.add(name, channels);
}

// Of x in the first pass; in a replay, those of the first pass.
NormalizationStatistics BatchNormReluLayer::batch_statistics(Context& context,
                                                             const BatchNormRelu& op,
                                                             const Value& x) const {
  if (context.pass == Pass::replay) {
    const auto kept = context.statistics.find(this);
    MEMFLOOR_CHECK(kept != context.statistics.end(), name, " is replayed without a first pass");
    NormalizationStatistics statistics = kept->second;
    if (context.tape) context.statistics.erase(kept);
    return statistics;
  }
  // Saved for backward like any other activation.
  const auto saved = [&](const char* what) {
    return std::make_shared<Tensor>(context.ledger, Shape{channels}, Dtype::f32,
                                    Category::activation, what + name);
  };
  const NormalizationStatistics statistics{saved("mean of "), saved("inverse deviation of ")};
  if (!x->statistics) {
    x->statistics = Tensor(context.ledger, {x->data.shape()[0], 2, channels}, Dtype::f32,
                           Category::workspace, "channel statistics for " + name);
    op.statistics(x->data.raw(), x->statistics.data<float>());
  }
  op.reduce(x->statistics.data<float>(), statistics.mean->data<float>(),
            statistics.inverse_deviation->data<float>(), context.running.proposed(running),
            context.running.momentum());
  x->statistics = Tensor();
  if (!context.tape) context.statistics.emplace(this, statistics);
  return statistics;
}

Value BatchNormReluLayer::operator()(Context& context, Value x) const {
  const Shape shape = x->data.shape();
  const BatchNormReluDescriptor d{shape[0], shape[1], shape[2], channels, x->data.dtype()};
  const BatchNormRelu& op = context.backend.batch_norm_relu(d);
  const float* scale = context.parameters.values(gamma);
  const float* shift = context.parameters.values(beta);

  if (context.pass == Pass::evaluation) {
    const Block inverse = context.workspace(channels * 4, "inverse deviation of " + name);
    const float* mean = context.running.evaluated(running);
    op.inverse_running_deviation(mean, static_cast<float*>(inverse.data()));
    const Value y = context.make_value(shape, d.dtype, name);
    op.forward(x->data.raw(), mean, static_cast<const float*>(inverse.data()), scale, shift,
               y->data.raw());
    return y;
  }

  const auto [mean, inverse] = batch_statistics(context, op, x);
  const Value y = context.compute_value(
      shape, d.dtype, name, {x},
      [&op, x, mean = mean, inverse = inverse, scale, shift](Context&, ValueNode& out) {
        op.forward(x->data.raw(), mean->data<float>(), inverse->data<float>(), scale, shift,
                   out.data.raw());
      });
  if (context.tape) {
    consume(x);
    y->normalized_by = std::make_shared<NormalizedBy>(NormalizedBy{x, mean, {}});
    context.record({x, y}, [this, &op, x, y, mean = mean, inverse = inverse](Context& ctx) {
      Tensor dy = take_gradient(y->gradient);
      Tensor sums = std::move(y->normalized_by->gradient_sums);
      if (!sums) {
        sums = gradient_sums(ctx, *y);
        op.mask_gradient({x->data.raw(), y->data.raw(), mean->data<float>(), sums.data<float>()},
                         dy.raw());
      }
      const Block parameter_gradients =
          ctx.workspace(2 * channels * 4, "parameter gradients of " + name);
      const Block scratch = ctx.workspace(op.plan().backward_scratch, "scratch of " + name);
      auto* dgamma = static_cast<float*>(parameter_gradients.data());
      float* dbeta = dgamma + channels;
      // In place, unless another consumer of x has left its gradient already.
      const bool accumulate = x->gradient && x->gradient->tensor;
      void* dx = accumulate ? gradient_target(ctx, x->gradient).data : dy.raw();
      op.backward(x->data.raw(), dy.raw(), mean->data<float>(), inverse->data<float>(),
                  ctx.parameters.values(gamma), sums.data<float>(), dx, accumulate, dgamma, dbeta,
                  scratch.data());
      ctx.parameters.add_gradient(gamma, dgamma);
      ctx.parameters.add_gradient(beta, dbeta);
      if (x->gradient && !accumulate) give_gradient(ctx, x->gradient, std::move(dy));
    });
  }
  return y;
}

// ---- the head

Value global_average_pool(Context& context, Value x, const std::string& name) {
  const Shape shape = x->data.shape();
  const GlobalAveragePool& op = context.backend.global_average_pool(
      {shape[0], shape[1], shape[2], shape[3], x->data.dtype()});
  const Value y = context.compute_value(
      {shape[0], shape[3]}, Dtype::f32, name, {x},
      [&op, x](Context&, ValueNode& out) { op.forward(x->data.raw(), out.data.data<float>()); });
  if (context.tape)
    context.record({}, [&op, dx = consume(x), dy_slot = y->gradient](Context& ctx) {
      const Tensor dy = take_gradient(dy_slot);
      op.backward(dy.data<float>(), gradient_target(ctx, dx).data);
    });
  return y;
}

LinearLayer::LinearLayer(ParameterStore& store, std::string name_, std::int64_t inputs_,
                         std::int64_t outputs_)
    : name(std::move(name_)), inputs(inputs_), outputs(outputs_) {
  const float bound = 1 / std::sqrt(static_cast<float>(inputs));
  weight = store.add({name + ".weight",
                      outputs,
                      1,
                      inputs,
                      {Initializer::Kind::uniform, bound},
                      false,
                      true,
                      {outputs, inputs}});
  bias = store.add(
      {name + ".bias", outputs, 1, 1, {Initializer::Kind::constant, 0}, false, true, {outputs}});
}

Value LinearLayer::operator()(Context& context, Value x) const {
  const LinearDescriptor d{x->data.shape()[0], inputs, outputs};
  const Linear& op = context.backend.linear(d);
  const Value y = context.compute_value(
      {d.rows, outputs}, Dtype::f32, name, {x}, [this, d, &op, x](Context& ctx, ValueNode& out) {
        op.forward(x->data.data<float>(), ctx.parameters.values(weight),
                   ctx.parameters.values(bias), out.data.data<float>());
        ctx.count_forward(d.multiply_adds());
      });
  if (context.tape) {
    consume(x);
    context.record({x}, [this, d, &op, x, dy_slot = y->gradient](Context& ctx) {
      const Tensor dy = take_gradient(dy_slot);
      const Block gradients =
          ctx.workspace((outputs * inputs + outputs) * 4, "parameter gradients of " + name);
      auto* dw = static_cast<float*>(gradients.data());
      float* db = dw + outputs * inputs;
      op.backward_weights(x->data.data<float>(), dy.data<float>(), dw, db);
      ctx.parameters.add_gradient(weight, dw);
      ctx.parameters.add_gradient(bias, db);
      if (x->gradient)
        op.backward_data(dy.data<float>(), ctx.parameters.values(weight),
                         static_cast<float*>(gradient_target(ctx, x->gradient).data));
      ctx.work.backward += 2 * d.multiply_adds();
    });
  }
  return y;
}

void softmax_cross_entropy(Context& context, Value logits, const std::int32_t* labels,
                           LossSums* sums, float gradient_scale) {
  const Shape shape = logits->data.shape();
  const SoftmaxCrossEntropy& op = context.backend.softmax_cross_entropy({shape[0], shape[1]});
  const Value probabilities = context.make_value(shape, Dtype::f32, "probabilities", false);
  op.forward(logits->data.data<float>(), labels, probabilities->data.data<float>(), sums);
  if (context.tape)
    context.record({probabilities}, [&op, labels, gradient_scale, probabilities,
                                     dx = consume(logits)](Context& ctx) {
      op.backward(probabilities->data.data<float>(), labels, gradient_scale,
                  static_cast<float*>(gradient_target(ctx, dx).data));
    });
}

}  // namespace memfloor

#include "models/group_norm_relu.h"

namespace memfloor {

GroupNormReluLayer::GroupNormReluLayer(ParameterStore& store, std::string name_,
                                       std::int64_t channels_)
    : name(std::move(name_)), channels(channels_) {
  const auto add = [&](const char* suffix, float value) {
    return store.add({name + suffix,
                      channels,
                      1,
                      1,
                      {Initializer::Kind::constant, value},
                      false,
                      true,
                      {channels}});
  };
  gamma = add(".weight", 1);
  beta = add(".bias", 0);
}

Value GroupNormReluLayer::operator()(Context& context, Value x) const {
  const Shape shape = x->data.shape();
  const GroupNormReluDescriptor d{
      shape[0], shape[1], shape[2], channels, channels / kGroupChannels, x->data.dtype()};
  const GroupNormRelu& op = context.backend.group_norm_relu(d);

  // Saved for backward like any other activation.
  const auto statistics = std::make_shared<Tensor>(
      context.ledger, Shape{d.images, 2, d.groups}, Dtype::f32,
      context.tape ? Category::activation : Category::transient, "statistics of " + name);
  const Value y = context.compute_value(
      shape, d.dtype, name, {x}, [this, &op, x, statistics](Context& ctx, ValueNode& out) {
        const Block scratch = ctx.workspace(op.plan().forward_scratch, "scratch of " + name);
        op.forward(x->data.raw(), ctx.parameters.values(gamma), ctx.parameters.values(beta),
                   out.data.raw(), statistics->data<float>(), scratch.data());
      });
  if (context.tape) {
    consume(x);
    context.record({x, y}, [this, &op, x, y, statistics](Context& ctx) {
      Tensor dy = take_gradient(y->gradient);
      const Block parameter_gradients =
          ctx.workspace(2 * channels * 4, "parameter gradients of " + name);
      const Block scratch = ctx.workspace(op.plan().backward_scratch, "scratch of " + name);
      auto* dgamma = static_cast<float*>(parameter_gradients.data());
      float* dbeta = dgamma + channels;
      // In place, unless another consumer of x has left its gradient already.
      const bool accumulate = x->gradient && x->gradient->tensor;
      void* dx = accumulate ? gradient_target(ctx, x->gradient).data : dy.raw();
      op.backward(x->data.raw(), y->data.raw(), statistics->data<float>(),
                  ctx.parameters.values(gamma), dy.raw(), dx, accumulate, dgamma, dbeta,
                  scratch.data());
      ctx.parameters.add_gradient(gamma, dgamma);
      ctx.parameters.add_gradient(beta, dbeta);
      if (x->gradient && !accumulate) give_gradient(ctx, x->gradient, std::move(dy));
    });
  }
  return y;
}

}  // namespace memfloor

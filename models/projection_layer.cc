#include "models/projection_layer.h"

#include <cmath>

namespace memfloor {

// ---- products

namespace {

Block packed_weights(Context& context, const Product& product, const WeightLayout& layout) {
  Block packed = context.workspace(layout.bytes(), "packed " + product.name);
  context.parameters.pack(product.weight, product.first_output, layout, packed.data());
  return packed;
}

std::int64_t multiply_adds(const Product& product, std::int64_t rows) {
  return rows * product.d.inputs * product.d.outputs;
}

}  // namespace

void Product::forward(Context& context, std::int64_t rows, const void* x, const float* bias_values,
                      bool relu, void* y) const {
  const Block packed = packed_weights(context, *this, op.plan().forward_weights);
  const Block scratch = context.workspace(op.plan().forward_scratch, "scratch of " + name);
  op.forward(rows, x, packed.data(), bias_values, relu, y, scratch.data());
  context.count_forward(multiply_adds(*this, rows));
}

void Product::backward_data(Context& context, std::int64_t rows, const void* dy, void* dx,
                            bool accumulate) const {
  const Block packed = packed_weights(context, *this, op.plan().backward_weights);
  const Block scratch = context.workspace(op.plan().backward_data_scratch, "scratch of " + name);
  op.backward_data(rows, dy, packed.data(), dx, accumulate, scratch.data());
  context.work.backward += multiply_adds(*this, rows);
}

void Product::backward_weights(Context& context, std::int64_t rows, const void* x, const void* dy,
                               float* db) const {
  const WeightLayout& layout = op.plan().gradient;
  const Block dw = context.workspace(layout.bytes(), "weight gradient of " + name);
  auto* const values = static_cast<float*>(dw.data());
  {
    const Block scratch =
        context.workspace(op.plan().backward_weights_scratch, "scratch of " + name);
    op.backward_weights(rows, x, dy, values, db, scratch.data());
  }
  context.parameters.add_gradient(weight, first_output, values, layout);
  context.work.backward += multiply_adds(*this, rows);
}

// ---- the layer

ProjectionLayer::ProjectionLayer(ParameterStore& store, std::string name_, std::int64_t inputs_,
                                 std::int64_t outputs_)
    : name(std::move(name_)), inputs(inputs_), outputs(outputs_) {
  const float bound = std::sqrt(6.0f / static_cast<float>(inputs + outputs));
  weight = store.add({.name = name + ".weight",
                      .outputs = outputs,
                      .inputs = inputs,
                      .init = {Initializer::Kind::uniform, bound},
                      .compressible = true,
                      .export_shape = {outputs, inputs}});
  bias = store.add({.name = name + ".bias",
                    .outputs = outputs,
                    .init = {Initializer::Kind::constant, 0},
                    .sensitive = true,
                    .export_shape = {outputs}});
}

Value ProjectionLayer::operator()(Context& context, Value x, Options options) const {
  const std::int64_t rows = x->data.shape()[0];
  const Dtype dtype = x->data.dtype();
  const Product product(context, name, weight, {inputs, outputs, dtype, dtype});

  Values summed;  // the residual first: its own making needs more memory than what follows it
  if (options.residual) summed.push_back(options.residual);
  summed.push_back(x);
  const Value y = context.compute_value(
      {rows, outputs}, dtype, name, std::move(summed),
      [this, product, x, options](Context& ctx, ValueNode& out) {
        product.forward(ctx, x->data.shape()[0], x->data.raw(), ctx.parameters.values(bias),
                        options.relu, out.data.raw());
        if (options.residual)
          ctx.backend.sequence_ops().add_dropout(*x->sequences, options.dropout, outputs,
                                                 out.data.dtype(), options.residual->data.raw(),
                                                 out.data.raw(), out.data.raw());
      });
  y->sequences = x->sequences;

  if (context.tape) {
    consume(x);
    context.record(
        {x}, [this, product, x, dy_slot = y->gradient, dropout = options.dropout,
              after_relu = options.after_relu,
              residual = options.residual ? consume(options.residual) : nullptr](Context& ctx) {
          Tensor dy = take_gradient(dy_slot);
          SequenceOps& ops = ctx.backend.sequence_ops();
          // The sum's gradient is the residual's as it is, and the product's after the dropout.
          Tensor dropped;
          if (dropout.active()) {
            dropped = Tensor(ctx.ledger, dy.shape(), dy.dtype(), Category::transient,
                             "gradient of " + name + " before dropout");
            ops.dropout(*x->sequences, dropout, outputs, dy.dtype(), dy.raw(), dropped.raw());
          }
          const void* const dproduct = dropped ? dropped.raw() : dy.raw();
          const std::int64_t n = dy.shape()[0];
          {
            const Block db = ctx.workspace(outputs * 4, "bias gradient of " + name);
            auto* const sums = static_cast<float*>(db.data());
            product.backward_weights(ctx, n, x->data.raw(), dproduct, sums);
            ctx.parameters.add_gradient(bias, sums);
          }
          if (x->gradient) {
            const GradientTarget target = gradient_target(ctx, x->gradient);
            product.backward_data(ctx, n, dproduct, target.data, target.accumulate);
            if (after_relu)
              ops.mask_relu(x->data.elements(), x->data.dtype(), x->data.raw(), target.data);
          }
          if (residual) give_gradient(ctx, residual, std::move(dy));
        });
  }
  return y;
}

}  // namespace memfloor

#include "engine/context.h"

namespace memfloor {

namespace {

// Without memory.
Value new_value(const Shape& shape, Dtype dtype, const std::string& label, bool has_gradient) {
  auto value = std::make_shared<ValueNode>();
  value->data = Tensor(shape, dtype);
  if (has_gradient)
    value->gradient =
        std::make_shared<GradientSlot>(GradientSlot{shape, dtype, "gradient of " + label, {}});
  return value;
}

void allocate(Ledger& ledger, Tensor& data, const std::string& label) {
  data = Tensor(ledger, data.shape(), data.dtype(), Category::transient, label);
}

}  // namespace

Value Context::make_value(const Shape& shape, Dtype dtype, const std::string& label,
                          bool needs_gradient) {
  Value value = new_value(shape, dtype, label, needs_gradient && pass != Pass::evaluation);
  allocate(ledger, value->data, label);
  return value;
}

Value Context::compute_value(const Shape& shape, Dtype dtype, const std::string& label,
                             Values inputs, Compute compute) {
  Value value = new_value(shape, dtype, label, pass != Pass::evaluation);
  if (pass == Pass::replay) {
    value->deferred =
        std::make_unique<Deferred>(Deferred{label, std::move(inputs), std::move(compute)});
  } else {
    allocate(ledger, value->data, label);
    compute(*this, *value);
  }
  return value;
}

void Context::need(const Value& x) {
  if (x->data) return;
  MEMFLOOR_CHECK(x->deferred, "an op reads a value that was not kept");
  // Goes with its inputs when the value is there.
  const std::unique_ptr<Deferred> deferred = std::move(x->deferred);
  for (const Value& input : deferred->inputs) need(input);
  allocate(ledger, x->data, deferred->label);
  deferred->compute(*this, *x);
  work.recomputed_bytes += x->data.bytes();
}

void Context::record(Values reads, Tape::Backward backward) {
  if (!tape) return;
  for (const Value& value : reads) need(value);
  tape->record(ledger, std::move(reads), std::move(backward));
}

Gradient consume(const Value& x) {
  if (x->gradient) ++x->gradient->consumers;
  return x->gradient;
}

GradientTarget gradient_target(Context& context, const Gradient& gradient) {
  GradientSlot& slot = *gradient;
  const bool accumulate = static_cast<bool>(slot.tensor);
  if (!accumulate)
    slot.tensor = Tensor(context.ledger, slot.shape, slot.dtype, Category::transient, slot.label);
  return {slot.tensor.raw(), accumulate, --slot.consumers == 0};
}

void give_gradient(Context& context, const Gradient& gradient, Tensor buffer) {
  GradientSlot& slot = *gradient;
  --slot.consumers;
  if (slot.tensor)
    context.backend.tensor_ops().add(buffer.raw(), slot.tensor.raw(), buffer.elements(),
                                     buffer.dtype());
  else
    slot.tensor = std::move(buffer);
}

Tensor take_gradient(const Gradient& gradient) {
  MEMFLOOR_CHECK(gradient && gradient->tensor, "backward reached a value that got no gradient");
  return std::move(gradient->tensor);
}

}  // namespace memfloor

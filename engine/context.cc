#include "engine/context.h"

namespace memfloor {

Value Context::make_value(const Shape& shape, Dtype dtype, const std::string& label,
                          bool needs_gradient) {
  auto value = std::make_shared<ValueNode>();
  value->data = Tensor(ledger, shape, dtype, Category::transient, label);
  if (tape && needs_gradient)
    value->gradient =
        std::make_shared<GradientSlot>(GradientSlot{shape, dtype, "gradient of " + label, {}});
  return value;
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

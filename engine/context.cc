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

Tensor take_gradient(const Gradient& gradient) {
  MEMFLOOR_CHECK(gradient && gradient->tensor, "backward reached a value that got no gradient");
  return std::move(gradient->tensor);
}

GradientTarget gradient_target(Context& context, const Gradient& gradient) {
  GradientSlot& slot = *gradient;
  const bool accumulate = static_cast<bool>(slot.tensor);
  if (!accumulate)
    slot.tensor = Tensor(context.ledger, slot.shape, slot.dtype, Category::transient, slot.label);
  return {slot.tensor.raw(), accumulate};
}

void give_gradient(Context& context, const Gradient& gradient, Tensor buffer) {
  if (!gradient->tensor) {
    gradient->tensor = std::move(buffer);
    return;
  }
  context.backend.tensor_ops().add(buffer.raw(), gradient->tensor.raw(), buffer.elements(),
                                   buffer.dtype());
}

}  // namespace memfloor

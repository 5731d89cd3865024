#include "techniques/precision/sixteen_bits.h"

#include "core/error.h"

namespace memfloor {

PrecisionPolicy mixed(Dtype dtype) {
  PrecisionPolicy policy;
  policy.activation = dtype;
  return policy;
}

PrecisionPolicy with_masters(Dtype dtype) {
  PrecisionPolicy policy = mixed(dtype);
  policy.weight = policy.gradient = dtype;
  policy.master = true;
  return policy;
}

PrecisionPolicy pure(Dtype dtype) {
  PrecisionPolicy policy = mixed(dtype);
  policy.weight = policy.gradient = policy.optimizer_state = dtype;
  policy.rounding = Rounding::stochastic;
  return policy;
}

void set_rounding(PrecisionPolicy& policy, const std::string& rounding) {
  if (rounding != "nearest" && rounding != "stochastic")
    throw InputError(concat("--rounding is nearest or stochastic, not '", rounding, "'"));
  policy.rounding = rounding == "nearest" ? Rounding::nearest : Rounding::stochastic;
  if (policy.rounding == Rounding::stochastic && policy.weight == Dtype::f32)
    throw InputError(
        concat("--rounding stochastic is for 16-bit weights and optimizer state; --precision ",
               policy.name, " keeps both in FP32"));
}

}  // namespace memfloor

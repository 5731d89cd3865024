#include "techniques/precision/mixed.h"

namespace memfloor {

// BF16 has the exponent range of FP32, so the loss needs no scaling.
PrecisionPolicy bf16_mixed() {
  PrecisionPolicy policy;
  policy.name = "bf16_mixed";
  policy.activation = Dtype::bf16;
  return policy;
}

}  // namespace memfloor

// The parameter store with sparsity off: every weight, gradient and state element exists.
#pragma once

#include <memory>

#include "engine/parameter_store.h"

namespace memfloor {

/// FP32 weights, gradients and state, one slab each, parameters in the order they were added.
std::unique_ptr<ParameterStore> make_dense_store();

}  // namespace memfloor

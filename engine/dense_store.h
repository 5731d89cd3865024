// The parameter store with sparsity off: every weight, gradient and state element exists.
#pragma once

#include <memory>

#include "engine/parameter_store.h"

namespace memfloor {

/// Two slabs, for sensitive parameters and for the others; parameters lie in the order they were
/// added.
std::unique_ptr<ParameterStore> make_dense_store();

}  // namespace memfloor

// The models by the names that a run spec uses.
#pragma once

#include <string>

#include "models/wide_resnet.h"

namespace memfloor {

/// "wrn<depth>_<width>". Throws InputError for another name.
WideResNetConfig make_model_config(const std::string& name);

/// "batch" or "group". Throws InputError for another name.
Norm make_norm(const std::string& name);

}  // namespace memfloor

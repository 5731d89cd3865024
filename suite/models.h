// The models by the names that a run spec uses, and their tasks.
#pragma once

#include <string>

#include "models/dynamic_conv.h"
#include "models/wide_resnet.h"
#include "suite/task.h"

namespace memfloor {

struct RunSpec;

/// What decides which data a model takes, which recipes train it and which spec keys it has.
enum class ModelFamily { wide_resnet, dynamic_conv };
/// Throws InputError for a name that is no model's.
ModelFamily family_of(const std::string& model);
/// "wide_resnet", "dynamic_conv"
const char* name_of(ModelFamily family);

/// "wrn<depth>_<width>". Throws InputError for another name.
WideResNetConfig make_wide_resnet_config(const std::string& name);

/// Of "dynamic_conv", as published, or "dynamic_conv<encoder layers>_<decoder layers>_<channels>"
/// (kernels 3, 7, 15, 31, 31, ...; twice the channels in feed-forward layers), with the spec's
/// conv_impl and loss_chunk. Throws InputError for another name.
DynamicConvConfig make_dynamic_conv_config(const RunSpec& spec);

/// "batch" or "group". Throws InputError for another name.
Norm make_norm(const std::string& name);

enum class DataUse {
  none,     // for the shape of the network: vocabularies are the usual ones
  sizes,    // for a prediction: opens no file where the sizes are known without
  samples,  // for training
};

/// Throws InputError where a validated spec's data lie in a folder and none is given.
void require_data_dir(const RunSpec& spec);

/// The task of a validated spec. Throws InputError for data that cannot be read.
std::unique_ptr<Task> make_task(const RunSpec& spec, DataUse use);

}  // namespace memfloor

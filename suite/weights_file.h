// Weights as safetensors files with the names and shapes (OIHW) of PyTorch's state dict.
#pragma once

#include <string>

#include "engine/parameter_store.h"
#include "engine/running_statistics.h"

namespace memfloor {

/// Every parameter dense, then running_mean and running_var of every batch norm as the latest
/// evaluation used them, all F32. Atomic.
void save_weights(const std::string& path, const ParameterStore& parameters,
                  RunningStatistics& running, TensorOps& ops);

/// Every compressed weight as what scipy.sparse.csr_matrix((data, indices, indptr), shape) takes:
/// NAME.data (F32), NAME.indices and NAME.indptr (I32), and in the metadata NAME.shape, "[out, in *
/// kh * kw]" with PyTorch's order of columns. Positions that are stored but zero are there. Atomic.
void save_sparse_weights(const std::string& path, const ParameterStore& parameters);

/// Throws InputError naming file and tensor where one is missing or has another shape, or where the
/// file has running statistics and the model has no batch norm. Running statistics may be absent as
/// a whole if `need_running` is false; they then keep their values.
void load_weights(const std::string& path, ParameterStore& parameters, RunningStatistics& running,
                  TensorOps& ops, bool need_running);

}  // namespace memfloor

// Matrix products with weights of the store: a whole matrix or some rows of it, and the layer.
#pragma once

#include <string>

#include "engine/context.h"

namespace memfloor {

/// x w^T, where w is rows [first_output, first_output + the op's outputs) of a matrix of the store.
/// The weights are unpacked into workspace for one call; their gradient goes to the store at once.
struct Product {
  Product(Context& context, const std::string& name_, ParameterStore::Handle weight_,
          const ProjectionDescriptor& descriptor, std::int64_t first_output_ = 0)
      : d(descriptor),
        op(context.backend.projection(descriptor)),
        name(name_),
        weight(weight_),
        first_output(first_output_) {}

  /// y (rows, outputs) = x w^T [+ bias], then max(0, y) where `relu`.
  void forward(Context& context, std::int64_t rows, const void* x, const float* bias, bool relu,
               void* y) const;
  /// dx = dy w, or dx += when `accumulate`.
  void backward_data(Context& context, std::int64_t rows, const void* dy, void* dx,
                     bool accumulate) const;
  /// Adds the weights' gradient; db (outputs), if not null, is overwritten by dy's column sums.
  void backward_weights(Context& context, std::int64_t rows, const void* x, const void* dy,
                        float* db) const;

  ProjectionDescriptor d;
  const Projection& op;
  const std::string& name;  // the layer's, for the ledger
  ParameterStore::Handle weight;
  std::int64_t first_output;
};

/// x w^T + b, and what usually follows it.
struct ProjectionLayer {
  ProjectionLayer() = default;
  /// Registers `name`.weight (outputs, inputs), uniform within sqrt(6 / (inputs + outputs)) (Glorot
  /// and Bengio 2010), and `name`.bias (zeros).
  ProjectionLayer(ParameterStore& store, std::string name, std::int64_t inputs,
                  std::int64_t outputs);

  struct Options {
    bool relu = false;        // y = max(0, x w^T + b); its one reader has `after_relu`
    bool after_relu = false;  // x is such a y
    Value residual{};         // y = residual + dropout(x w^T + b); null: none
    Dropout dropout{};        // of that sum
  };
  /// x (rows, inputs) -> (rows, outputs). Keeps x for backward. A ReLU's backward is that of the
  /// product after it, which has its output at hand; so the one before it need not make it again.
  Value operator()(Context& context, Value x, Options options) const;

  std::string name;
  std::int64_t inputs = 0, outputs = 0;
  ParameterStore::Handle weight = 0, bias = 0;
};

}  // namespace memfloor

// The parts that a data set is divided into.
#pragma once

namespace memfloor {

/// The numbers key synthetic data: never renumber, only append. Image data sets have no `valid`.
enum class Split { train, test, valid };

}  // namespace memfloor

// Compressed rows: the column of every non-zero, and where each row begins in the slab.
#pragma once

#include "techniques/sparsity/pattern.h"

namespace memfloor {

/// K columns of 2 or 4 bytes, and a row start of 4 bytes for every output channel and the end.
std::unique_ptr<Pattern> make_csr_pattern(SparseIndex index);

}  // namespace memfloor

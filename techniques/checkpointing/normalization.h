// Segments of one unit each. A unit of a batch norm, a ReLU and a convolution, replayed, stops
// before the convolution: the cheap normalisation is made again, convolutions' outputs are kept.
#pragma once

#include "techniques/checkpointing/cut.h"

namespace memfloor {

CutRule every_unit();

}  // namespace memfloor

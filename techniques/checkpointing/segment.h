// A checkpointed segment: a stretch of forward code that keeps its inputs and runs again in
// backward.
#pragma once

#include <functional>

#include "engine/context.h"

namespace memfloor {

/// Runs `forward` without recording its ops, and records one op for all of it. In backward that op
/// runs `forward` again, recorded this time and only as far as its own backward reads what it makes
/// (Pass::replay), and undoes it at once. Gradients go to the inputs' own buffers, in the order in
/// which they would have gone without the segment, so every bit is the same.
///
/// `summands`: positions of inputs whose data a replay does not read. Where nothing is recorded
/// (in evaluation, and inside a segment's first pass) this is a plain call. `forward` is kept until
/// backward. It may contain segments.
Values run_segment(Context& context, std::function<Values(Context&, Values)> forward, Values inputs,
                   const std::vector<std::size_t>& summands);

}  // namespace memfloor

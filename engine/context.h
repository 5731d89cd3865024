// What a layer needs to run: the device, the ledger, the parameters, the policies, and which pass
// it is.
#pragma once

#include <map>

#include "backends/backend.h"
#include "engine/parameter_store.h"
#include "engine/precision_policy.h"
#include "engine/retention_plan.h"
#include "engine/running_statistics.h"
#include "engine/tape.h"

namespace memfloor {

enum class Pass {
  first,       // training forward: batch statistics, running statistics proposed
  replay,      // the same arithmetic again, of what backward reads; proposes nothing
  evaluation,  // running statistics, nothing recorded
};

/// Multiply-adds that ran, by purpose.
struct MultiplyAdds {
  std::int64_t forward = 0, backward = 0, recompute = 0;
  std::int64_t recomputed_bytes = 0;  // of the values that replays made again
};

/// Which part of which minibatch runs: with a sample's place in the part, all that random draws of
/// its forward pass depend on.
struct PartPlace {
  std::uint32_t seed = 0;
  std::int64_t minibatch = 0;     // counted over the whole run
  std::int64_t first_sample = 0;  // of the part, in the minibatch
};

/// What a normalisation layer subtracted and multiplied by, each (channels) f32 or as it likes.
struct NormalizationStatistics {
  std::shared_ptr<Tensor> mean, inverse_deviation;
};

struct Context {
  Backend& backend;
  Ledger& ledger;
  ParameterStore& parameters;
  RunningStatistics& running;
  const PrecisionPolicy& precision;
  const RetentionPlan& retention;
  Tape* tape = nullptr;  // null where nothing is recorded
  Pass pass = Pass::first;
  PartPlace place{};
  MultiplyAdds work{};
  /// Of layers that ran in the first pass without being recorded, by layer: a replay normalises
  /// with them, and the op that it records takes them over.
  std::map<const void*, NormalizationStatistics> statistics{};

  Block workspace(std::int64_t bytes, std::string_view label) {
    return ledger.allocate(bytes, Category::workspace, label);
  }

  /// The dropout of this part at one of the model's sites; off in evaluation.
  Dropout dropout(float probability, std::uint32_t site) const {
    if (pass == Pass::evaluation) return {};
    return {probability, place.seed, static_cast<std::uint32_t>(place.minibatch),
            static_cast<std::uint32_t>(place.first_sample), site};
  }

  /// A new forward value; it has a gradient where `needs_gradient` and this is no evaluation.
  Value make_value(const Shape& shape, Dtype dtype, const std::string& label,
                   bool needs_gradient = true);

  /// The new forward value that an op computes from `inputs`: now, or in a replay once an op reads
  /// it. So a replay leaves out what only leads to values that backward does not read.
  Value compute_value(const Shape& shape, Dtype dtype, const std::string& label, Values inputs,
                      Compute compute);

  /// Makes x's data where a replay has put that off. An op needs what it reads.
  void need(const Value& x);

  /// Records an op that will read `reads` in backward; where `tape` is null, nothing.
  void record(Values reads, Tape::Backward backward);

  void count_forward(std::int64_t multiply_adds) {
    (pass == Pass::replay ? work.recompute : work.forward) += multiply_adds;
  }
};

/// Announces, when an op is recorded, that its backward will add to x's gradient once: by
/// gradient_target or by give_gradient. Null where x has no gradient.
Gradient consume(const Value& x);

/// The buffer to write a gradient to.
struct GradientTarget {
  void* data;
  bool accumulate;  // it holds something to add to
  bool last;        // no other consumer will add to it
};
GradientTarget gradient_target(Context& context, const Gradient& gradient);

/// Adds a whole buffer: the slot adopts it where it is empty, else it is added and freed.
void give_gradient(Context& context, const Gradient& gradient, Tensor buffer);

/// Hands out the collected gradient of a value that backward has reached; the slot is empty after.
Tensor take_gradient(const Gradient& gradient);

}  // namespace memfloor

// The tape: ops recorded by forward, undone in reverse.
//
// A recorded op names the values it will read in backward. From then until its last reader is done
// such a value is an `activation`; then it is freed, as early as can be.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "engine/value.h"

namespace memfloor {

struct Context;

/// One more recorded op reads these values: they are activations from now on.
void hold(Ledger& ledger, const Values& values);
/// It is done with them, and lets go of them; those that it was the last to read are freed.
void release(Values& values);

class Tape {
 public:
  using Backward = std::function<void(Context&)>;

  void record(Ledger& ledger, Values reads, Backward backward);

  /// Runs and drops the recorded ops, last one first.
  void backward(Context& context);

  bool empty() const { return steps_.empty(); }

 private:
  struct Step {
    Values reads;
    Backward backward;
  };
  std::vector<Step> steps_;
};

}  // namespace memfloor

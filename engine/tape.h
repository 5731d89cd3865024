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

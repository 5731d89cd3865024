#include "engine/tape.h"

#include "engine/context.h"

namespace memfloor {

void Tape::record(Ledger& ledger, Values reads, Backward backward) {
  for (const Value& value : reads) {
    ++value->readers;
    ledger.retag(value->data.block(), Category::activation);
  }
  steps_.push_back({std::move(reads), std::move(backward)});
}

void Tape::backward(Context& context) {
  while (!steps_.empty()) {
    // Moved out first: what the op releases must be gone before the next one allocates.
    Step step = std::move(steps_.back());
    steps_.pop_back();
    step.backward(context);
    for (const Value& value : step.reads)
      if (--value->readers == 0) value->data = Tensor();
  }
}

}  // namespace memfloor

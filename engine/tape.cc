#include "engine/tape.h"

#include "engine/context.h"

namespace memfloor {

void hold(Ledger& ledger, const Values& values) {
  for (const Value& value : values) {
    ++value->readers;
    ledger.retag(value->data.block(), Category::activation);
  }
}

void release(Values& values) {
  for (const Value& value : values)
    if (--value->readers == 0) value->data = Tensor(value->data.shape(), value->data.dtype());
  values.clear();
}

void Tape::record(Ledger& ledger, Values reads, Backward backward) {
  hold(ledger, reads);
  steps_.push_back({std::move(reads), std::move(backward)});
}

void Tape::backward(Context& context) {
  while (!steps_.empty()) {
    // Moved out first: what the op releases must be gone before the next one allocates.
    Step step = std::move(steps_.back());
    steps_.pop_back();
    step.backward(context);
    release(step.reads);
  }
}

}  // namespace memfloor

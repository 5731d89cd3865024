#include "techniques/checkpointing/segment.h"

#include <algorithm>

namespace memfloor {
namespace {

using Forward = std::function<Values(Context&, Values)>;

// Runs `forward` as part of `tape` and of `pass`.
Values run_on(Context& context, Tape* tape, Pass pass, const Forward& forward, Values inputs) {
  const auto outer_tape = std::exchange(context.tape, tape);
  const auto outer_pass = std::exchange(context.pass, pass);
  Values outputs = forward(context, std::move(inputs));
  context.tape = outer_tape;
  context.pass = outer_pass;
  return outputs;
}

// The value without its data: where its gradient goes, and what it stands for.
Value gradient_only(const Value& x) {
  auto value = std::make_shared<ValueNode>();
  value->data = Tensor(x->data.shape(), x->data.dtype());
  value->gradient = x->gradient;
  value->sequences = x->sequences;
  value->tokens = x->tokens;
  return value;
}

struct Segment {
  Forward forward;
  Values inputs;                   // without data where no op reads it
  Values reads;                    // those with data
  std::vector<Gradient> outgoing;  // of the outputs

  void backward(Context& context) {
    Tape tape;
    {
      const Values outputs = run_on(context, &tape, Pass::replay, forward, inputs);
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        const Gradient& replayed = outputs[i]->gradient;
        // An input that is handed on has one buffer inside and outside.
        if (replayed != outgoing[i] && outgoing[i]->tensor)
          replayed->tensor = std::move(outgoing[i]->tensor);
      }
    }
    // What was announced for the whole segment, its ops have announced again.
    for (const Value& input : inputs)
      if (input->gradient) --input->gradient->consumers;
    inputs.clear();
    release(reads);
    tape.backward(context);
  }
};

}  // namespace

Values run_segment(Context& context, Forward forward, Values inputs,
                   const std::vector<std::size_t>& summands) {
  if (!context.tape) return forward(context, std::move(inputs));

  const auto segment = std::make_shared<Segment>();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    consume(inputs[i]);
    const bool has_data = inputs[i]->data || inputs[i]->deferred;  // text has none
    const bool read = has_data && std::find(summands.begin(), summands.end(), i) == summands.end();
    if (read) segment->reads.push_back(inputs[i]);
    segment->inputs.push_back(read ? inputs[i] : gradient_only(inputs[i]));
  }
  for (const Value& value : segment->reads) context.need(value);
  hold(context.ledger, segment->reads);
  Values outputs = run_on(context, nullptr, context.pass, forward, std::move(inputs));
  for (const Value& output : outputs) segment->outgoing.push_back(output->gradient);
  segment->forward = std::move(forward);
  context.record({}, [segment](Context& ctx) { segment->backward(ctx); });
  return outputs;
}

}  // namespace memfloor

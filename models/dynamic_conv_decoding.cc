// Decoding a position at a time: the layers' own functions, given what they need of the past.
#include <algorithm>

#include "models/dynamic_conv.h"

namespace memfloor {

DecoderState DynamicConv::start_decoding(Context& context, Value source_text) const {
  auto first = std::make_shared<Sequences>();
  for (std::int64_t i = 1; i <= source_text->sequences->count(); ++i) first->first_row.push_back(i);
  DecoderState state;
  state.hypotheses = std::move(first);

  Values values;
  values.push_back(std::move(source_text));
  values.push_back(nullptr);  // no target text
  for (std::size_t i = 0; i < encoder_units_; ++i)
    values = chain_[i].forward(context, std::move(values));
  const Value encoded = encoder_.back().ln2(context, std::move(values[0]));
  for (const Layer& layer : decoder_) {
    const std::int64_t kernel = layer.conv.descriptor.kernel;
    Tensor slots(context.ledger, {state.rows(), kernel, config_.channels}, encoded->data.dtype(),
                 Category::transient, "past inputs of " + layer.conv.name);
    state.layers.push_back(
        {layer.k(context, encoded, {}), layer.v(context, encoded, {}), {std::move(slots), 0}});
  }
  return state;
}

Value DynamicConv::decode(Context& context, DecoderState& state, const std::int32_t* tokens) const {
  auto singles = std::make_shared<Sequences>();
  for (std::int64_t row = 1; row <= state.rows(); ++row) singles->first_row.push_back(row);
  Value x =
      tgt_(context, make_text(std::move(singles), tokens), {}, state.layers.front().past.position);
  x->sequences = state.hypotheses;
  for (std::size_t i = 0; i < decoder_.size(); ++i) {
    const Layer& layer = decoder_[i];
    DecoderState::Layer& remembered = state.layers[i];
    Values values =
        layer.convolve(context, layer.start(context, std::move(x), {}), &remembered.past);
    Value normalized = layer.ln1(context, std::move(values[0]));
    Value queries = layer.q(context, normalized, {});
    values = {std::move(queries), remembered.keys, remembered.values, std::move(normalized)};
    values = layer.attend(context, std::move(values));
    values = layer.narrow(context, layer.widen(context, std::move(values)));
    x = layer.ln2(context, std::move(values[0]));
  }
  return logits(context, std::move(x));
}

void DecoderState::reorder(Context& context, const std::vector<std::int32_t>& from) {
  auto reordered = std::make_shared<Sequences>();
  std::size_t next = 0;
  const std::vector<std::int64_t>& old_rows = hypotheses->first_row;
  for (std::size_t i = 0; i + 1 < old_rows.size(); ++i) {
    while (next < from.size() && from[next] >= old_rows[i] && from[next] < old_rows[i + 1]) ++next;
    reordered->first_row.push_back(static_cast<std::int64_t>(next));
  }
  MEMFLOOR_CHECK(next == from.size(), "hypotheses are not in the order of their sentences");

  const std::int64_t new_rows = reordered->rows();
  TensorOps& ops = context.backend.tensor_ops();
  const Block indices = context.workspace(new_rows * 4, "order of hypotheses");
  ops.upload(indices.data(), indices.bytes(), [&](void* host) {
    std::copy(from.begin(), from.end(), static_cast<std::int32_t*>(host));
  });
  for (Layer& layer : layers) {
    Tensor& old = layer.past.slots;
    const Shape shape = old.shape();
    const Dtype dtype = old.dtype();
    Tensor slots(context.ledger, {new_rows, shape[1], shape[2]}, dtype, Category::transient,
                 "past inputs");
    ops.gather_rows(old.raw(), dtype, shape[0], shape[1] * shape[2],
                    static_cast<const std::int32_t*>(indices.data()), new_rows, dtype, slots.raw());
    old = std::move(slots);
  }
  hypotheses = std::move(reordered);
}

}  // namespace memfloor

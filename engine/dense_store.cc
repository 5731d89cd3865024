#include "engine/dense_store.h"

namespace memfloor {

void DenseStore::allocate(Ledger& ledger, TensorOps& ops, const PrecisionPolicy& precision,
                          int optimizer_states) {
  ledger_ = &ledger;
  ops_ = &ops;
  std::int64_t sensitive = 0, others = 0;
  for (const ParameterSpec& spec : specs_) {
    Place& place = places_.emplace_back();
    if (!is_dense(spec)) continue;
    std::int64_t& end = spec.sensitive ? sensitive : others;
    place = {spec.sensitive ? &sensitive_ : &others_, end};
    end += spec.elements();
  }
  others_.allocate(ledger, ops, others, precision, optimizer_states, "");
  sensitive_.allocate(ledger, ops, sensitive, PrecisionPolicy{}, optimizer_states, "sensitive");
  slabs_ = {&others_, &sensitive_};
  reached_.assign(specs_.size(), 0);
}

void DenseStore::initialize(std::uint32_t seed) {
  DenseStore::write_dense([&](Handle h, float* to) {
    for (std::int64_t i = 0; i < specs_[h].elements(); ++i)
      to[i] = initial_value(specs_[h], h, i, seed);
  });
  for (ParameterSlab* slab : slabs_) slab->zero_state();
}

const float* DenseStore::values(Handle h) const { return static_cast<const float*>(weights(h)); }

void DenseStore::pack(Handle h, std::int64_t first_output, const WeightLayout& layout,
                      void* packed) {
  ops_->pack_weights(weights(h, first_output), places_[h].slab->formats().weight, layout, packed);
}

void DenseStore::gather_rows(Ledger&, Handle h, const std::int32_t* rows, std::int64_t count,
                             Dtype to, void* out) {
  ops_->gather_rows(weights(h), places_[h].slab->formats().weight, specs_[h].outputs,
                    row_elements(h), rows, count, to, out);
}

bool DenseStore::first_gradient(Handle h, std::int64_t first, std::int64_t rows) {
  std::int64_t& reached = reached_[h];
  const std::int64_t last = first + rows;
  MEMFLOOR_CHECK(first <= reached && last <= (first == reached ? specs_[h].outputs : reached),
                 "rows ", first, " to ", last, " of '", specs_[h].name,
                 "' got a gradient out of order: the first ", reached, " of ", specs_[h].outputs,
                 " have one");
  if (first < reached) return false;
  reached = last;
  return true;
}

Block DenseStore::row_scratch(Ledger& ledger, Handle h, std::int64_t count) const {
  return ledger.allocate(TensorOps::row_scratch(specs_[h].outputs, count), Category::workspace,
                         "order of rows of " + specs_[h].name);
}

void DenseStore::add_gradient(Handle h, std::int64_t first_output, const float* gradient,
                              const WeightLayout& layout) {
  const bool first = first_gradient(h, first_output, layout.outputs());
  ops_->unpack_gradient(gradient, layout, gradients(h, first_output),
                        places_[h].slab->formats().gradient, !first);
}

void DenseStore::add_row_gradients(Handle h, const std::int32_t* rows, std::int64_t count,
                                   const void* x, Dtype from) {
  const ParameterSpec& spec = specs_[h];
  const Dtype to = places_[h].slab->formats().gradient;
  if (first_gradient(h, 0, spec.outputs))
    ops_->zero(gradients(h), spec.elements() * static_cast<std::int64_t>(size_of(to)));
  const Block scratch = row_scratch(*ledger_, h, count);
  ops_->add_rows(x, from, rows, count, gradients(h), to, spec.outputs, row_elements(h),
                 scratch.data());
}

void DenseStore::add_gradient(Handle h, const float* gradient) {
  if (first_gradient(h, 0, specs_[h].outputs))
    ops_->copy(gradients(h), gradient, specs_[h].elements() * 4);
  else
    ops_->add(gradient, gradients(h), specs_[h].elements(), Dtype::f32);
}

bool DenseStore::gradients_finite() {
  bool finite = true;
  for (const ParameterSlab* slab : slabs_) finite = finite && slab->gradients_finite();
  return finite;
}

void DenseStore::update(const Optimizer& optimizer, const UpdateStep& step) {
  for (std::size_t h = 0; h < specs_.size(); ++h)
    MEMFLOOR_CHECK(reached_[h] == specs_[h].outputs, "parameter '", specs_[h].name,
                   "' got no gradient for ", specs_[h].outputs - reached_[h], " of ",
                   specs_[h].outputs, " rows");
  for (ParameterSlab* slab : slabs_) slab->update(optimizer, step);
}

std::vector<StateTensor> DenseStore::state() {
  std::vector<StateTensor> tensors;
  for (ParameterSlab* slab : slabs_)
    for (StateTensor& tensor : slab->state()) tensors.push_back(std::move(tensor));
  return tensors;
}

void DenseStore::read_dense(Handle h, float* to) const {
  places_[h].slab->read_weights(places_[h].offset, specs_[h].elements(), to);
}

void DenseStore::read_dense_gradient(Handle h, float* to) const {
  places_[h].slab->read_gradients(places_[h].offset, specs_[h].elements(), to);
}

void DenseStore::read_pattern(Handle h, std::uint8_t* stored) const {
  std::fill(stored, stored + specs_[h].elements(), std::uint8_t{1});
}

void DenseStore::write_dense(const Fill& fill) {
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    const auto h = static_cast<Handle>(i);
    if (places_[h].slab)
      places_[h].slab->write_weights(places_[h].offset, specs_[h].elements(),
                                     [&](float* to) { fill(h, to); });
  }
}

}  // namespace memfloor

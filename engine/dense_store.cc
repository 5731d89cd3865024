#include "engine/dense_store.h"

namespace memfloor {

void DenseStore::allocate(Ledger& ledger, TensorOps& ops, const PrecisionPolicy& precision,
                          int optimizer_states) {
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
  fresh_.assign(specs_.size(), true);
}

void DenseStore::initialize(std::uint32_t seed) {
  DenseStore::write_dense([&](Handle h, float* to) {
    for (std::int64_t i = 0; i < specs_[h].elements(); ++i)
      to[i] = initial_value(specs_[h], h, i, seed);
  });
  for (ParameterSlab* slab : slabs_) slab->zero_state();
}

const float* DenseStore::values(Handle h) const { return static_cast<const float*>(weights(h)); }

void DenseStore::pack(Handle h, const WeightLayout& layout, void* packed) {
  ops_->pack_weights(weights(h), places_[h].slab->formats().weight, layout, packed);
}

void DenseStore::add_gradient(Handle h, const float* gradient, const WeightLayout& layout) {
  ops_->unpack_gradient(gradient, layout, gradients(h), places_[h].slab->formats().gradient,
                        !first_gradient(h));
}

void DenseStore::add_gradient(Handle h, const float* gradient) {
  if (first_gradient(h))
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
    MEMFLOOR_CHECK(!fresh_[h], "parameter '", specs_[h].name, "' got no gradient");
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

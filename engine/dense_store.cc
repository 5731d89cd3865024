#include "engine/dense_store.h"

#include <array>

namespace memfloor {
namespace {

class DenseStore final : public ParameterStore {
 public:
  void allocate(Ledger& ledger, TensorOps& ops, const PrecisionPolicy& precision,
                int optimizer_states) override {
    ops_ = &ops;
    std::int64_t sensitive = 0, others = 0;
    for (const ParameterSpec& spec : specs_) {
      std::int64_t& end = spec.sensitive ? sensitive : others;
      places_.push_back({spec.sensitive ? &sensitive_ : &others_, end});
      end += spec.elements();
    }
    others_.allocate(ledger, ops, others, precision, optimizer_states, "");
    sensitive_.allocate(ledger, ops, sensitive, PrecisionPolicy{}, optimizer_states, "sensitive");
    fresh_.assign(specs_.size(), true);
  }

  void initialize(std::uint32_t seed) override {
    for (std::size_t h = 0; h < specs_.size(); ++h)
      places_[h].slab->write_weights(places_[h].offset, specs_[h].elements(), [&](float* to) {
        for (std::int64_t i = 0; i < specs_[h].elements(); ++i)
          to[i] = initial_value(specs_[h], static_cast<Handle>(h), i, seed);
      });
    for (ParameterSlab* slab : slabs_) slab->zero_state();
  }

  const float* values(Handle h) const override { return static_cast<const float*>(weights(h)); }

  void pack(Handle h, const WeightLayout& layout, void* packed) override {
    ops_->pack_weights(weights(h), places_[h].slab->formats().weight, layout, packed);
  }

  void begin_minibatch() override { fresh_.assign(specs_.size(), true); }

  void add_gradient(Handle h, const float* gradient, const WeightLayout& layout) override {
    ops_->unpack_gradient(gradient, layout, gradients(h), places_[h].slab->formats().gradient,
                          !fresh_[h]);
    fresh_[h] = false;
  }

  void add_gradient(Handle h, const float* gradient) override {
    if (fresh_[h])
      ops_->copy(gradients(h), gradient, specs_[h].elements() * 4);
    else
      ops_->add(gradient, gradients(h), specs_[h].elements(), Dtype::f32);
    fresh_[h] = false;
  }

  bool gradients_finite() override {
    return sensitive_.gradients_finite() && others_.gradients_finite();
  }

  void update(const Optimizer& optimizer, const UpdateStep& step) override {
    for (std::size_t h = 0; h < specs_.size(); ++h)
      MEMFLOOR_CHECK(!fresh_[h], "parameter '", specs_[h].name, "' got no gradient");
    for (ParameterSlab* slab : slabs_) slab->update(optimizer, step);
  }

  void after_update(std::int64_t) override {}

  std::vector<StateTensor> state() override {
    std::vector<StateTensor> tensors;
    for (ParameterSlab* slab : slabs_)
      for (StateTensor& tensor : slab->state()) tensors.push_back(std::move(tensor));
    return tensors;
  }

  void read_dense(Handle h, float* to) const override {
    places_[h].slab->read_weights(places_[h].offset, specs_[h].elements(), to);
  }
  void read_dense_gradient(Handle h, float* to) const override {
    places_[h].slab->read_gradients(places_[h].offset, specs_[h].elements(), to);
  }
  void write_dense(Handle h, const float* from) override {
    places_[h].slab->write_weights(places_[h].offset, specs_[h].elements(), [&](float* to) {
      std::copy(from, from + specs_[h].elements(), to);
    });
  }

 private:
  struct Place {
    ParameterSlab* slab;
    std::int64_t offset;
  };
  void* weights(Handle h) const { return places_[h].slab->weights(places_[h].offset); }
  void* gradients(Handle h) const { return places_[h].slab->gradients(places_[h].offset); }

  TensorOps* ops_ = nullptr;
  ParameterSlab sensitive_, others_;
  const std::array<ParameterSlab*, 2> slabs_{&others_, &sensitive_};
  std::vector<Place> places_;
  std::vector<bool> fresh_;  // no gradient yet in this minibatch
};

}  // namespace

std::unique_ptr<ParameterStore> make_dense_store() { return std::make_unique<DenseStore>(); }

}  // namespace memfloor

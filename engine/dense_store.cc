#include "engine/dense_store.h"

#include <cmath>

namespace memfloor {
namespace {

class DenseStore final : public ParameterStore {
 public:
  void allocate(Ledger& ledger, TensorOps& ops, int optimizer_states) override {
    ops_ = &ops;
    std::int64_t total = 0;
    for (const ParameterSpec& spec : specs_) {
      offsets_.push_back(total);
      total += spec.elements();
    }
    weights_ = Tensor(ledger, {total}, Dtype::f32, Category::weight, "weights");
    gradients_ = Tensor(ledger, {total}, Dtype::f32, Category::gradient, "gradients");
    for (int s = 0; s < optimizer_states; ++s)
      states_.emplace_back(ledger, Shape{total}, Dtype::f32, Category::optimizer_state,
                           "optimizer state");
    fresh_.assign(specs_.size(), true);
  }

  void initialize(std::uint32_t seed) override {
    ops_->upload(weights_.raw(), weights_.bytes(), [&](void* host) {
      float* to = static_cast<float*>(host);
      for (std::size_t h = 0; h < specs_.size(); ++h)
        for (std::int64_t i = 0; i < specs_[h].elements(); ++i)
          *to++ = initial_value(specs_[h], static_cast<Handle>(h), i, seed);
    });
    for (Tensor& state : states_) ops_->zero(state.raw(), state.bytes());
  }

  const float* values(Handle h) const override { return at(weights_, h); }

  void pack(Handle h, const WeightLayout& layout, void* packed) override {
    ops_->pack_weights(at(weights_, h), Dtype::f32, layout, packed);
  }

  void begin_minibatch() override { fresh_.assign(specs_.size(), true); }

  void add_gradient(Handle h, const float* gradient, const WeightLayout& layout) override {
    ops_->unpack_gradient(gradient, layout, at(gradients_, h), Dtype::f32, !fresh_[h]);
    fresh_[h] = false;
  }

  void add_gradient(Handle h, const float* gradient) override {
    if (fresh_[h])
      ops_->copy(at(gradients_, h), gradient, specs_[h].elements() * 4);
    else
      ops_->add(gradient, at(gradients_, h), specs_[h].elements(), Dtype::f32);
    fresh_[h] = false;
  }

  bool gradients_finite() override {
    return ops_->all_finite(gradients_.raw(), gradients_.elements(), Dtype::f32);
  }

  void update(const Optimizer& optimizer, float learning_rate) override {
    for (std::size_t h = 0; h < specs_.size(); ++h)
      MEMFLOOR_CHECK(!fresh_[h], "parameter '", specs_[h].name, "' got no gradient");
    std::array<float*, Optimizer::kMaxStates> state{};
    for (std::size_t s = 0; s < states_.size(); ++s) state[s] = states_[s].data<float>();
    optimizer.update(*ops_, weights_.elements(), weights_.data<float>(), gradients_.data<float>(),
                     state, learning_rate);
  }

  void after_update(std::int64_t) override {}

  std::vector<StateTensor> state() override {
    std::vector<StateTensor> tensors{{"weights", Dtype::f32, weights_.elements(), weights_.raw()}};
    for (std::size_t s = 0; s < states_.size(); ++s)
      tensors.push_back(
          {concat("optimizer_state.", s), Dtype::f32, states_[s].elements(), states_[s].raw()});
    return tensors;
  }

  void read_dense(Handle h, float* to) const override {
    ops_->download(to, at(weights_, h), specs_[h].elements() * 4);
  }
  void read_dense_gradient(Handle h, float* to) const override {
    ops_->download(to, at(gradients_, h), specs_[h].elements() * 4);
  }
  void write_dense(Handle h, const float* from) override {
    ops_->upload(at(weights_, h), specs_[h].elements() * 4, [&](void* host) {
      std::copy(from, from + specs_[h].elements(), static_cast<float*>(host));
    });
  }

 private:
  float* at(const Tensor& slab, Handle h) const { return slab.data<float>() + offsets_[h]; }

  TensorOps* ops_ = nullptr;
  std::vector<std::int64_t> offsets_;
  Tensor weights_, gradients_;
  std::vector<Tensor> states_;
  std::vector<bool> fresh_;  // no gradient yet in this minibatch
};

}  // namespace

std::unique_ptr<ParameterStore> make_dense_store() { return std::make_unique<DenseStore>(); }

}  // namespace memfloor

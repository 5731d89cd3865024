#include "engine/parameter_slab.h"

#include <algorithm>

namespace memfloor {
namespace {

void download_as_f32(TensorOps& ops, const void* from, Dtype dtype, std::int64_t count, float* to) {
  const auto bytes = count * static_cast<std::int64_t>(size_of(dtype));
  if (dtype == Dtype::f32) return ops.download(to, from, bytes);
  std::vector<char> stored(static_cast<std::size_t>(bytes));
  ops.download(stored.data(), from, bytes);
  to_f32(stored.data(), dtype, to, count);
}

// FNV-1a.
std::uint32_t hash_of(const std::string& name) {
  std::uint32_t hash = 0x811c9dc5u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193u;
  return hash;
}

}  // namespace

void ParameterSlab::allocate(Ledger& ledger, TensorOps& ops, std::int64_t elements,
                             const PrecisionPolicy& formats, int optimizer_states,
                             std::string name) {
  name_ = name.empty() ? "" : name + ".";
  formats_ = formats;
  ops_ = &ops;
  elements_ = elements;
  const Shape shape{elements};
  weights_ = Tensor(ledger, shape, formats.weight, Category::weight, name_ + "weights");
  gradients_ = Tensor(ledger, shape, formats.gradient, Category::gradient, name_ + "gradients");
  if (formats.master)
    master_ =
        Tensor(ledger, shape, Dtype::f32, Category::optimizer_state, name_ + "master weights");
  for (int s = 0; s < optimizer_states; ++s)
    states_.emplace_back(ledger, shape, formats.optimizer_state, Category::optimizer_state,
                         name_ + "optimizer state");
}

void ParameterSlab::write_weights(std::int64_t offset, std::int64_t count,
                                  const std::function<void(float*)>& fill) {
  ops_->upload(weights(offset), count * static_cast<std::int64_t>(size_of(formats_.weight)),
               [&](void* host) {
                 if (formats_.weight == Dtype::f32) return fill(static_cast<float*>(host));
                 std::vector<float> values(static_cast<std::size_t>(count));
                 fill(values.data());
                 from_f32(values.data(), formats_.weight, host, count);
                 if (!master_) return;
                 ops_->upload(at(master_, offset), count * 4, [&](void* master) {
                   std::copy(values.begin(), values.end(), static_cast<float*>(master));
                 });
               });
}

void ParameterSlab::read_weights(std::int64_t offset, std::int64_t count, float* to) const {
  download_as_f32(*ops_, weights(offset), formats_.weight, count, to);
}

void ParameterSlab::read_gradients(std::int64_t offset, std::int64_t count, float* to) const {
  download_as_f32(*ops_, gradients(offset), formats_.gradient, count, to);
}

void ParameterSlab::zero_state() {
  for (Tensor& state : states_) ops_->zero(state.raw(), state.bytes());
}

bool ParameterSlab::gradients_finite() const {
  return ops_->all_finite(gradients_.raw(), elements_, formats_.gradient);
}

void ParameterSlab::update(const Optimizer& optimizer, const UpdateStep& step) {
  UpdateArrays arrays;
  arrays.elements = elements_;
  arrays.weight_dtype = formats_.weight;
  arrays.gradient_dtype = formats_.gradient;
  arrays.state_dtype = formats_.optimizer_state;
  arrays.weights = weights_.raw();
  arrays.master = static_cast<float*>(master_.raw());
  arrays.gradient = gradients_.raw();
  arrays.rounding = formats_.rounding;
  arrays.stream = hash_of(name_);
  for (std::size_t s = 0; s < states_.size(); ++s) arrays.state[s] = states_[s].raw();
  optimizer.update(*ops_, step, arrays);
}

std::vector<StateTensor> ParameterSlab::state() {
  std::vector<StateTensor> tensors{{name_ + "weights", formats_.weight, elements_, weights_.raw()}};
  if (master_) tensors.push_back({name_ + "master_weights", Dtype::f32, elements_, master_.raw()});
  for (std::size_t s = 0; s < states_.size(); ++s)
    tensors.push_back({concat(name_, "optimizer_state.", s), formats_.optimizer_state, elements_,
                       states_[s].raw()});
  return tensors;
}

}  // namespace memfloor

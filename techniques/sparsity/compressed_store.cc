#include "techniques/sparsity/compressed_store.h"

#include <algorithm>
#include <cmath>

#include "techniques/sparsity/pattern_move.h"

namespace memfloor {
namespace {

// The same density everywhere to within one weight, `total` in all, at least one in each layer.
std::vector<std::int64_t> even_counts(const std::vector<CompressedLayer>& layers,
                                      std::int64_t total) {
  std::int64_t positions = 0;
  for (const CompressedLayer& layer : layers) positions += layer.elements();
  std::vector<std::int64_t> counts;
  std::int64_t before = 0, given = 0;
  for (const CompressedLayer& layer : layers) {
    before += layer.elements();
    const std::int64_t until = before * total / positions;
    counts.push_back(until - given);
    given = until;
  }
  for (std::int64_t& n : counts)
    for (; n == 0; ++n) --*std::max_element(counts.begin(), counts.end());
  return counts;
}

// As Pattern::state() lists them.
PatternArrays pattern_arrays(void* const* arrays, std::size_t count) {
  return {arrays[0], count > 1 ? static_cast<std::uint32_t*>(arrays[1]) : nullptr};
}

}  // namespace

CompressedStore::CompressedStore(double sparsity, std::unique_ptr<SparseMethod> method,
                                 std::unique_ptr<Pattern> pattern, SparseScope scope)
    : sparsity_(sparsity),
      method_(std::move(method)),
      pattern_(std::move(pattern)),
      scope_(scope) {}

void CompressedStore::allocate(Ledger& ledger, TensorOps& ops, const PrecisionPolicy& precision,
                               int optimizer_states) {
  DenseStore::allocate(ledger, ops, precision, optimizer_states);
  std::int64_t positions = 0;
  layer_of_.assign(specs_.size(), 0);
  for (std::size_t h = 0; h < specs_.size(); ++h) {
    const ParameterSpec& spec = specs_[h];
    if (is_dense(spec)) continue;
    layer_of_[h] = layers_.size();
    layers_.push_back({static_cast<Handle>(h), spec.outputs, spec.taps, spec.inputs, spec.name});
    positions += spec.elements();
    words_ += bits::words(spec.elements());
    largest_words_ = std::max(largest_words_, bits::words(spec.elements()));
  }
  non_zeros_ = std::llround((1 - sparsity_) * static_cast<double>(positions));
  const auto least = static_cast<std::int64_t>(layers_.size());
  if (least == 0 || non_zeros_ < least)
    throw InputError(concat("--sparsity ", sparsity_, " leaves ", non_zeros_, " of ", positions,
                            " weights for ", least,
                            " layers, which need one each; choose a lower sparsity or 0"));
  set_counts(even_counts(layers_, non_zeros_));
  slab_.allocate(ledger, ops, non_zeros_, precision, optimizer_states, "compressed");
  slabs_.push_back(&slab_);
  pattern_->allocate(ledger, layers_, non_zeros_);
  if (method_->state_size() > 0)
    method_state_ = Tensor(ledger, {method_->state_size()}, Dtype::f32, Category::buffer,
                           "state of the sparse method");
}

void CompressedStore::set_counts(const std::vector<std::int64_t>& counts) {
  starts_.assign(1, 0);
  for (const std::int64_t n : counts) starts_.push_back(starts_.back() + n);
  MEMFLOOR_CHECK(starts_.back() == non_zeros_, "layers hold ", starts_.back(), " weights, not ",
                 non_zeros_);
}

void CompressedStore::on_host_pattern(const std::function<void(const PatternArrays&)>& body) const {
  std::vector<DeviceArray> arrays;
  for (const StateTensor& tensor : pattern_->state())
    arrays.push_back({tensor.data, tensor.bytes()});
  ops_->on_host(arrays, [&](const std::vector<void*>& host) {
    body(pattern_arrays(host.data(), host.size()));
  });
}

void CompressedStore::store_layer(const PatternArrays& host, std::size_t l,
                                  const std::uint64_t* bits,
                                  const std::function<float(std::int64_t)>& value) {
  pattern_->write(host, l, starts_[l], bits);
  slab_.write_weights(starts_[l], count(l), [&](float* to) {
    bits::for_each(bits, 0, layers_[l].elements(),
                   [&](std::int64_t position) { *to++ = value(position); });
  });
}

void CompressedStore::initialize(std::uint32_t seed) {
  DenseStore::initialize(seed);
  seed_ = seed;
  const Philox random(seed, Purpose::sparse_pattern);
  set_counts(even_counts(layers_, non_zeros_));
  on_host_pattern([&](const PatternArrays& host) {
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      const CompressedLayer& layer = layers_[l];
      std::vector<std::uint64_t> drawn(static_cast<std::size_t>(bits::words(layer.elements())));
      draw_positions(random, 0, static_cast<std::uint32_t>(l), drawn.data(), layer.elements(),
                     layer.elements(), count(l), drawn.data());
      store_layer(host, l, drawn.data(), [&](std::int64_t position) {
        return initial_value(specs_[layer.handle], layer.handle, position, seed);
      });
    }
  });
  if (method_state_)
    ops_->upload(method_state_.raw(), method_state_.bytes(),
                 [&](void* host) { method_->initialize(static_cast<float*>(host)); });
}

void CompressedStore::pack(Handle h, std::int64_t first_output, const WeightLayout& layout,
                           void* packed) {
  if (!compressed(h)) return DenseStore::pack(h, first_output, layout, packed);
  const std::size_t l = layer_of_[h];
  ops_->unpack_sparse(slab_.weights(starts_[l]), slab_.formats().weight, device_pattern(l),
                      first_output, layout, packed);
}

bool CompressedStore::pack_non_zeros(Handle h, const NonZeroLayout& layout, void* packed,
                                     std::int64_t bytes) {
  if (!compressed(h)) return false;
  const std::size_t l = layer_of_[h];
  if (layout.bytes(count(l)) > bytes) return false;
  ops_->list_non_zeros(slab_.weights(starts_[l]), slab_.formats().weight, device_pattern(l), layout,
                       packed);
  return true;
}

void CompressedStore::gather_rows(Ledger& ledger, Handle h, const std::int32_t* rows,
                                  std::int64_t count, Dtype to, void* out) {
  if (!compressed(h)) return DenseStore::gather_rows(ledger, h, rows, count, to, out);
  const std::size_t l = layer_of_[h];
  const Block scratch = row_scratch(ledger, h, count);
  ops_->gather_sparse_rows(slab_.weights(starts_[l]), slab_.formats().weight, device_pattern(l),
                           rows, count, to, out, scratch.data());
}

void CompressedStore::add_gradient(Handle h, std::int64_t first_output, const float* gradient,
                                   const WeightLayout& layout) {
  if (!compressed(h)) return DenseStore::add_gradient(h, first_output, gradient, layout);
  const std::size_t l = layer_of_[h];
  const bool first = first_gradient(h, first_output, layout.outputs());
  ops_->gather_gradient(gradient, layout, device_pattern(l), first_output,
                        slab_.gradients(starts_[l]), slab_.formats().gradient, !first);
}

void CompressedStore::add_row_gradients(Handle h, const std::int32_t* rows, std::int64_t count,
                                        const void* gradients, Dtype from) {
  if (!compressed(h)) return DenseStore::add_row_gradients(h, rows, count, gradients, from);
  const std::size_t l = layer_of_[h];
  const Dtype to = slab_.formats().gradient;
  if (first_gradient(h, 0, specs_[h].outputs))
    ops_->zero(slab_.gradients(starts_[l]),
               this->count(l) * static_cast<std::int64_t>(size_of(to)));
  const Block scratch = row_scratch(*ledger_, h, count);
  ops_->add_sparse_rows(gradients, from, rows, count, slab_.gradients(starts_[l]), to,
                        device_pattern(l), scratch.data());
}

void CompressedStore::move_pattern(std::int64_t step) {
  const Block next_block = ledger_->allocate(words_ * 8, Category::workspace, "next pattern");
  const Block old_block =
      ledger_->allocate(largest_words_ * 8, Category::workspace, "pattern of a layer");
  // On the host: the workspaces, the method's state, the slab's arrays (weights first), the
  // pattern.
  std::vector<DeviceArray> arrays{{next_block.data(), next_block.bytes()},
                                  {old_block.data(), old_block.bytes()},
                                  {method_state_.raw(), method_state_.bytes()}};
  const std::vector<StateTensor> slab = slab_.state(), index = pattern_->state();
  for (const auto* tensors : {&slab, &index})
    for (const StateTensor& tensor : *tensors) arrays.push_back({tensor.data, tensor.bytes()});

  ops_->on_host(arrays, [&](const std::vector<void*>& host) {
    auto* next = static_cast<std::uint64_t*>(host[0]);
    auto* old = static_cast<std::uint64_t*>(host[1]);
    void* const* const slab_arrays = &host[3];
    const PatternArrays pattern = pattern_arrays(&host[3 + slab.size()], index.size());

    const Dtype dtype = slab_.formats().weight;
    const auto weights = [&](std::size_t l) {
      return static_cast<const char*>(slab_arrays[0]) +
             starts_[l] * static_cast<std::int64_t>(size_of(dtype));
    };
    PatternEvent event;
    event.step = step;
    event.random = Philox(seed_, Purpose::sparse_pattern);
    for (std::size_t l = 0; l < layers_.size(); ++l)
      event.layers.push_back({layers_[l].elements(), count(l)});
    event.below = [&](std::size_t l, float threshold) {
      return count_below(weights(l), dtype, count(l), threshold);
    };
    const std::vector<LayerMove> moves = method_->plan(event, static_cast<float*>(host[2]));

    std::vector<MovingLayer> moving;
    std::vector<std::int64_t> counts;
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      moving.push_back({pattern_->layer(pattern, l, starts_[l]), starts_[l], count(l), next});
      next += bits::words(layers_[l].elements());
      choose_next(moving[l], weights(l), dtype, moves[l].drop, moves[l].grow, event.random,
                  static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(l), old);
      counts.push_back(count(l) - moves[l].drop + moves[l].grow);
    }
    for (std::size_t a = 0; a < slab.size(); ++a)
      follow(slab_arrays[a], size_of(slab[a].type), moving, old);
    set_counts(counts);
    for (std::size_t l = 0; l < layers_.size(); ++l)
      pattern_->write(pattern, l, starts_[l], moving[l].next);
  });
}

std::vector<StateTensor> CompressedStore::state() {
  std::vector<StateTensor> tensors = DenseStore::state();
  for (StateTensor& tensor : pattern_->state()) tensors.push_back(std::move(tensor));
  if (method_state_)
    tensors.push_back({"sparse_method", Dtype::f32, method_state_.elements(), method_state_.raw()});
  return tensors;
}

void CompressedStore::state_restored() {
  on_host_pattern([&](const PatternArrays& host) {
    starts_.assign(1, 0);
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      const std::int64_t n = pattern_->non_zeros(host, l, starts_[l]);
      if (n < 1 || starts_[l] + n > non_zeros_)
        throw InputError(concat("the pattern of '", layers_[l].name, "' contradicts itself"));
      starts_.push_back(starts_[l] + n);
    }
    if (starts_.back() != non_zeros_)
      throw InputError(concat("its pattern has ", starts_.back(), " non-zeros, not ", non_zeros_));
  });
}

std::vector<std::string> CompressedStore::notes() const {
  const std::string note = method_->note();
  return note.empty() ? std::vector<std::string>{} : std::vector<std::string>{note};
}

void CompressedStore::for_each_stored(Handle h, const Visit& visit) const {
  const std::size_t l = layer_of_[h];
  on_host_pattern([&](const PatternArrays& host) {
    for_each_non_zero(pattern_->layer(host, l, starts_[l]), visit);
  });
}

void CompressedStore::read_dense(Handle h, float* to) const {
  if (!compressed(h)) return DenseStore::read_dense(h, to);
  const std::size_t l = layer_of_[h];
  std::vector<float> stored(static_cast<std::size_t>(count(l)));
  slab_.read_weights(starts_[l], count(l), stored.data());
  std::fill_n(to, specs_[h].elements(), 0.0f);
  for_each_stored(h, [&](std::int64_t k, std::int64_t position) { to[position] = stored[k]; });
}

void CompressedStore::read_dense_gradient(Handle h, float* to) const {
  if (!compressed(h)) return DenseStore::read_dense_gradient(h, to);
  const std::size_t l = layer_of_[h];
  std::vector<float> stored(static_cast<std::size_t>(count(l)));
  slab_.read_gradients(starts_[l], count(l), stored.data());
  std::fill_n(to, specs_[h].elements(), 0.0f);
  for_each_stored(h, [&](std::int64_t k, std::int64_t position) { to[position] = stored[k]; });
}

void CompressedStore::read_pattern(Handle h, std::uint8_t* stored) const {
  if (!compressed(h)) return DenseStore::read_pattern(h, stored);
  std::fill_n(stored, specs_[h].elements(), std::uint8_t{0});
  for_each_stored(h, [&](std::int64_t, std::int64_t position) { stored[position] = 1; });
}

void CompressedStore::write_dense(const Fill& fill) {
  std::vector<float> dense;
  const auto read = [&](std::size_t l) {
    dense.resize(static_cast<std::size_t>(layers_[l].elements()));
    fill(layers_[l].handle, dense.data());
  };
  std::vector<std::int64_t> counts;
  std::int64_t missing = non_zeros_;
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    read(l);
    const auto zeros = std::count(dense.begin(), dense.end(), 0.0f);
    counts.push_back(std::max<std::int64_t>(1, layers_[l].elements() - zeros));
    missing -= counts[l];
  }
  if (missing < 0)
    throw InputError(concat("the compressible layers have ", non_zeros_ - missing,
                            " non-zero weights where --sparsity ", sparsity_, " holds ", non_zeros_,
                            "; give the sparsity they were trained with"));
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const std::int64_t more = std::min(missing, layers_[l].elements() - counts[l]);
    counts[l] += more, missing -= more;
  }

  DenseStore::write_dense(fill);
  set_counts(counts);
  on_host_pattern([&](const PatternArrays& host) {
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      read(l);
      const std::int64_t elements = layers_[l].elements();
      std::vector<std::uint64_t> stored(static_cast<std::size_t>(bits::words(elements)));
      std::int64_t left = count(l);
      for (std::int64_t p = 0; p < elements; ++p)
        if (dense[p] != 0) bits::insert(stored.data(), p), --left;
      for (std::int64_t p = 0; left > 0; ++p)
        if (!bits::test(stored.data(), p)) bits::insert(stored.data(), p), --left;
      store_layer(host, l, stored.data(), [&](std::int64_t position) { return dense[position]; });
    }
  });
  slab_.zero_state();
}

}  // namespace memfloor

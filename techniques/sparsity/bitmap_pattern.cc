#include "techniques/sparsity/bitmap_pattern.h"

#include <algorithm>

namespace memfloor {
namespace {

class BitmapPattern final : public Pattern {
 public:
  void allocate(Ledger& ledger, const std::vector<CompressedLayer>& layers, std::int64_t) override {
    layers_ = layers;
    std::int64_t words = 0;
    for (const CompressedLayer& layer : layers) {
      first_words_.push_back(words);
      words += bits::words(layer.elements());
    }
    words_ = words;
    block_ = ledger.allocate(words * 8, Category::sparse_index, "pattern, a bit a position");
  }

  PatternArrays arrays() const override { return {block_.data(), nullptr}; }
  std::vector<StateTensor> state() const override {
    return {{"pattern.bitmap", StoredType::u64, words_, block_.data()}};
  }

  SparsePattern layer(const PatternArrays& arrays, std::size_t l, std::int64_t) const override {
    const CompressedLayer& layer = layers_[l];
    return {SparseIndex::bitmap, layer.outputs, layer.taps, layer.inputs, set(arrays, l), nullptr};
  }

  void write(const PatternArrays& host, std::size_t l, std::int64_t,
             const std::uint64_t* positions) const override {
    std::copy(positions, positions + bits::words(layers_[l].elements()), set(host, l));
  }

  std::int64_t non_zeros(const PatternArrays& host, std::size_t l, std::int64_t) const override {
    const std::int64_t elements = layers_[l].elements();
    const std::uint64_t* words = set(host, l);
    const bool beyond = bits::count(words, elements, bits::words(elements) * 64) > 0;
    return beyond ? -1 : bits::count(words, 0, elements);
  }

 private:
  std::uint64_t* set(const PatternArrays& arrays, std::size_t l) const {
    return static_cast<std::uint64_t*>(arrays.positions) + first_words_[l];
  }

  std::vector<CompressedLayer> layers_;
  std::vector<std::int64_t> first_words_;  // by layer
  std::int64_t words_ = 0;
  Block block_;
};

}  // namespace

std::unique_ptr<Pattern> make_bitmap_pattern() { return std::make_unique<BitmapPattern>(); }

}  // namespace memfloor

#include "techniques/sparsity/csr_pattern.h"

#include "core/error.h"

namespace memfloor {
namespace {

template <class Column>
class CsrPattern final : public Pattern {
 public:
  void allocate(Ledger& ledger, const std::vector<CompressedLayer>& layers,
                std::int64_t non_zeros) override {
    constexpr std::int64_t kColumns = std::int64_t{1} << (8 * sizeof(Column));
    layers_ = layers;
    for (const CompressedLayer& layer : layers) {
      if (layer.columns() > kColumns)
        throw InputError(concat("--sparse-index csr16 numbers up to ", kColumns, " columns; '",
                                layer.name, "' has ", layer.columns(), "; use bitmap or csr32"));
      first_rows_.push_back(rows_);
      rows_ += layer.outputs;
    }
    if (non_zeros > UINT32_MAX)
      throw InputError(concat("--sparse-index csr holds up to ", UINT32_MAX, " non-zeros, not ",
                              non_zeros, "; use bitmap"));
    non_zeros_ = non_zeros;
    columns_ = ledger.allocate(non_zeros * static_cast<std::int64_t>(sizeof(Column)),
                               Category::sparse_index, "columns of non-zeros");
    row_starts_ = ledger.allocate((rows_ + 1) * 4, Category::sparse_index, "starts of rows");
  }

  PatternArrays arrays() const override {
    return {columns_.data(), static_cast<std::uint32_t*>(row_starts_.data())};
  }
  std::vector<StateTensor> state() const override {
    const StoredType type = sizeof(Column) == 2 ? StoredType::u16 : StoredType::u32;
    return {{"pattern.columns", type, non_zeros_, columns_.data()},
            {"pattern.row_starts", StoredType::u32, rows_ + 1, row_starts_.data()}};
  }

  SparsePattern layer(const PatternArrays& arrays, std::size_t l,
                      std::int64_t start) const override {
    const CompressedLayer& layer = layers_[l];
    return {sizeof(Column) == 2 ? SparseIndex::csr16 : SparseIndex::csr32,
            layer.outputs,
            layer.taps,
            layer.inputs,
            static_cast<Column*>(arrays.positions) + start,
            arrays.row_starts + first_rows_[l]};
  }

  void write(const PatternArrays& host, std::size_t l, std::int64_t start,
             const std::uint64_t* positions) const override {
    const CompressedLayer& layer = layers_[l];
    auto* columns = static_cast<Column*>(host.positions);
    std::uint32_t* starts = host.row_starts + first_rows_[l];
    auto k = static_cast<std::uint32_t>(start);
    for (std::int64_t o = 0; o < layer.outputs; ++o) {
      starts[o] = k;
      const std::int64_t begin = o * layer.columns();
      bits::for_each(positions, begin, begin + layer.columns(), [&](std::int64_t position) {
        columns[k++] = static_cast<Column>(position - begin);
      });
    }
    starts[layer.outputs] = k;
  }

  std::int64_t non_zeros(const PatternArrays& host, std::size_t l,
                         std::int64_t start) const override {
    const CompressedLayer& layer = layers_[l];
    const auto* columns = static_cast<const Column*>(host.positions);
    const std::uint32_t* starts = host.row_starts + first_rows_[l];
    if (starts[0] != start) return -1;
    for (std::int64_t o = 0; o < layer.outputs; ++o) {
      if (starts[o + 1] < starts[o] || starts[o + 1] > non_zeros_) return -1;
      for (std::uint32_t k = starts[o]; k < starts[o + 1]; ++k)
        if (columns[k] >= layer.columns() || (k > starts[o] && columns[k] <= columns[k - 1]))
          return -1;
    }
    return starts[layer.outputs] - starts[0];
  }

 private:
  std::vector<CompressedLayer> layers_;
  std::vector<std::int64_t> first_rows_;  // by layer
  std::int64_t rows_ = 0, non_zeros_ = 0;
  Block columns_, row_starts_;
};

}  // namespace

std::unique_ptr<Pattern> make_csr_pattern(SparseIndex index) {
  if (index == SparseIndex::csr16) return std::make_unique<CsrPattern<std::uint16_t>>();
  return std::make_unique<CsrPattern<std::uint32_t>>();
}

}  // namespace memfloor

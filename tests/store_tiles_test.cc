// Dense and compressed stores in tiles of outputs and by rows, as vocabulary matrices are used.
#include <algorithm>

#include "core/memory_source.h"
#include "techniques/sparsity/bitmap_pattern.h"
#include "techniques/sparsity/compressed_store.h"
#include "techniques/sparsity/csr_pattern.h"
#include "techniques/sparsity/dsr.h"
#include "tests/op_testing.h"
#include "tests/sparse_testing.h"
#include "tests/temporary_folder.h"

namespace memfloor::testing {
namespace {

constexpr std::int64_t kEntries = 70, kChannels = 24;
constexpr int kEmbedding = 0, kLayer = 1, kOutput = 2;

ParameterSpec matrix(const std::string& name, std::int64_t outputs, bool vocabulary) {
  ParameterSpec spec;
  spec.name = name;
  spec.outputs = outputs, spec.inputs = kChannels;
  spec.init = {Initializer::Kind::normal, 0.1f};
  spec.compressible = true, spec.vocabulary = vocabulary;
  spec.zero_row = vocabulary ? 1 : -1;
  return spec;
}

std::unique_ptr<ParameterStore> make_store(const std::string& kind) {
  if (kind == "dense") return std::make_unique<DenseStore>();
  auto pattern = kind == "csr16"   ? make_csr_pattern(SparseIndex::csr16)
                 : kind == "csr32" ? make_csr_pattern(SparseIndex::csr32)
                                   : make_bitmap_pattern();
  return std::make_unique<CompressedStore>(
      0.7, std::make_unique<Dsr>(RewireSchedule(1000)), std::move(pattern),
      kind == "layers" ? SparseScope::layers : SparseScope::all);
}

// An embedding, a layer's matrix of three taps and an output matrix.
struct Net {
  explicit Net(const std::string& kind, Dtype weight = Dtype::f32)
      : ledger(heap_memory()), store(make_store(kind)) {
    PrecisionPolicy precision;
    precision.weight = precision.gradient = weight;
    store->add(matrix("embedding", kEntries, true));
    ParameterSpec layer = matrix("layer", 48, false);
    layer.taps = 3;
    store->add(layer);
    store->add(matrix("output", kEntries, true));
    store->allocate(ledger, backend()->tensor_ops(), precision, 1);
    store->initialize(3);
  }
  const ParameterSpec& spec(int h) const { return store->specs()[h]; }
  std::size_t elements(int h) const { return static_cast<std::size_t>(spec(h).elements()); }

  Floats weights(int h) const {
    Floats values(elements(h));
    store->read_dense(h, values.data());
    return values;
  }
  Floats gradient(int h) const {
    Floats values(elements(h));
    store->read_dense_gradient(h, values.data());
    return values;
  }
  std::vector<std::uint8_t> pattern(int h) const {
    std::vector<std::uint8_t> stored(elements(h));
    store->read_pattern(h, stored.data());
    return stored;
  }
  std::int64_t non_zeros(int h) const {
    const auto stored = pattern(h);
    return std::count(stored.begin(), stored.end(), 1);
  }

  Ledger ledger;
  std::unique_ptr<ParameterStore> store;
};

// Tiles of a kernel that has the outputs innermost, with a gap after each input.
WeightLayout columns_of(std::int64_t rows, std::int64_t taps, Dtype dtype) {
  WeightLayout layout = WeightLayout::ohwi(rows, taps, kChannels, dtype);
  for (std::int64_t o = 0; o < rows; ++o) layout.output[o] = o;
  for (std::int64_t i = 0; i < kChannels; ++i) layout.input[i] = i * (rows + 3);
  for (std::int64_t t = 0; t < taps; ++t) layout.tap[t] = t * kChannels * (rows + 3);
  layout.elements = taps * kChannels * (rows + 3);
  return layout;
}

// (first row, rows), in order.
std::vector<std::pair<std::int64_t, std::int64_t>> tiles_of(std::int64_t outputs,
                                                            std::int64_t rows) {
  std::vector<std::pair<std::int64_t, std::int64_t>> tiles;
  for (std::int64_t first = 0; first < outputs; first += rows)
    tiles.emplace_back(first, std::min(rows, outputs - first));
  return tiles;
}

constexpr std::int64_t kTileRows[] = {1, 16, 30, 64, 100};

class StoreTiles : public ::testing::TestWithParam<std::tuple<std::string, Dtype>> {};

TEST_P(StoreTiles, AreTheWholeWeightsRows) {
  const auto& [kind, dtype] = GetParam();
  Net net(kind, dtype);
  for (const int h : {kLayer, kOutput})
    for (const Dtype to : {Dtype::f32, Dtype::bf16}) {
      const std::int64_t outputs = net.spec(h).outputs, taps = net.spec(h).taps;
      const Floats expected = rounded(net.weights(h), to);
      for (const std::int64_t rows : kTileRows)
        for (const auto& [first, count] : tiles_of(outputs, rows))
          for (const WeightLayout& layout :
               {WeightLayout::ohwi(count, taps, kChannels, to), columns_of(count, taps, to)}) {
            const Buffer packed(layout.bytes());
            net.store->pack(h, first, layout, packed.data());
            const Floats tile = packed.read(to);
            for (std::int64_t o = 0; o < count; ++o)
              for (std::int64_t t = 0; t < taps; ++t)
                for (std::int64_t i = 0; i < kChannels; ++i)
                  ASSERT_EQ(tile[layout.offset(o, t, i)],
                            expected[((first + o) * taps + t) * kChannels + i]);
          }
    }
}

// Three parts of a minibatch, twice: the first part of the second minibatch overwrites.
TEST_P(StoreTiles, GradientsInTilesAreTheWholeGradient) {
  const auto& [kind, dtype] = GetParam();
  for (const std::int64_t rows : kTileRows) {
    Net whole(kind, dtype), tiled(kind, dtype);
    for (std::uint32_t minibatch = 0; minibatch < 2; ++minibatch) {
      whole.store->begin_minibatch();
      tiled.store->begin_minibatch();
      for (std::uint32_t part = 0; part < 3; ++part)
        for (const int h : {kLayer, kOutput}) {
          const std::int64_t outputs = whole.spec(h).outputs, taps = whole.spec(h).taps;
          const Floats dw = numbers(outputs * taps * kChannels, 10 * minibatch + part);
          whole.store->add_gradient(h, dw.data(),
                                    WeightLayout::ohwi(outputs, taps, kChannels, Dtype::f32));
          for (const auto& [first, count] : tiles_of(outputs, rows)) {
            const WeightLayout layout = columns_of(count, taps, Dtype::f32);
            Floats tile(static_cast<std::size_t>(layout.elements), NAN);
            for (std::int64_t o = 0; o < count; ++o)
              for (std::int64_t t = 0; t < taps; ++t)
                for (std::int64_t i = 0; i < kChannels; ++i)
                  tile[layout.offset(o, t, i)] = dw[((first + o) * taps + t) * kChannels + i];
            tiled.store->add_gradient(h, first, tile.data(), layout);
          }
        }
      for (const int h : {kLayer, kOutput}) EXPECT_EQ(tiled.gradient(h), whole.gradient(h)) << rows;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, StoreTiles,
                         ::testing::Combine(::testing::Values("dense", "bitmap", "csr16", "csr32"),
                                            ::testing::Values(Dtype::f32, Dtype::f16, Dtype::bf16)),
                         [](const auto& p) {
                           return concat(std::get<0>(p.param), "_", name_of(std::get<1>(p.param)));
                         });

TEST(StoreTilesOrder, GapsAndLeftoversAreRefused) {
  const WeightLayout ten = WeightLayout::ohwi(10, 1, kChannels, Dtype::f32);
  const Floats dw(10 * kChannels, 1);
  for (const char* kind : {"dense", "bitmap"}) {
    Net net(kind);
    net.store->begin_minibatch();
    net.store->add_gradient(kOutput, 0, dw.data(), ten);
    net.store->add_gradient(kOutput, 0, dw.data(), ten);  // adds
    for (const std::int64_t first : {5, 20, 65})
      EXPECT_NE(error_of<Error>([&] {
                  net.store->add_gradient(kOutput, first, dw.data(), ten);
                }).find("'output' got a gradient out of order: the first 10 of 70 have one"),
                std::string::npos)
          << first;
    const std::string missing =
        error_of<Error>([&] { net.store->update(Sgd(0.9f, 0, false), UpdateStep{}); });
    EXPECT_NE(missing.find("got no gradient"), std::string::npos) << missing;
  }
}

// ---- rows

const std::vector<std::int32_t> kTokens[] = {
    {5, 0, 69, 5, 5, 1, 33, 5}, {7, 7, 7, 69}, {68}, {}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}};

class StoreRows : public ::testing::TestWithParam<std::string> {};

// The same weights dense: rows are equal, and gradients where the pattern has positions.
TEST_P(StoreRows, AreTheDenseStoresUnderTheMask) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    Net sparse(GetParam(), dtype), dense("dense", dtype);
    dense.store->write_dense([&](int h, float* to) {
      const Floats weights = sparse.weights(h);
      std::copy(weights.begin(), weights.end(), to);
    });
    const auto stored = sparse.pattern(kEmbedding);
    for (std::uint32_t minibatch = 0; minibatch < 2; ++minibatch) {
      sparse.store->begin_minibatch();
      dense.store->begin_minibatch();
      for (std::size_t part = 2 * minibatch; part < 3 + 2 * minibatch; ++part) {
        const std::vector<std::int32_t>& tokens = kTokens[part];
        const auto count = static_cast<std::int64_t>(tokens.size());
        const Buffer one(count * kChannels * 2), other(count * kChannels * 2);
        Ledger ledger(heap_memory());  // not the store's, as while decoding
        sparse.store->gather_rows(ledger, kEmbedding, tokens.data(), count, Dtype::bf16,
                                  one.data());
        dense.store->gather_rows(ledger, kEmbedding, tokens.data(), count, Dtype::bf16,
                                 other.data());
        EXPECT_EQ(one.read(Dtype::bf16), other.read(Dtype::bf16));

        const Buffer x(numbers(count * kChannels, static_cast<std::uint32_t>(part)), Dtype::f32);
        sparse.store->add_row_gradients(kEmbedding, tokens.data(), count, x.data(), Dtype::f32);
        dense.store->add_row_gradients(kEmbedding, tokens.data(), count, x.data(), Dtype::f32);
      }
      Floats masked = dense.gradient(kEmbedding);
      EXPECT_NE(norm(masked), 0);
      for (std::size_t i = 0; i < masked.size(); ++i)
        if (!stored[i]) masked[i] = 0;
      EXPECT_EQ(sparse.gradient(kEmbedding), masked) << name_of(dtype);
    }
    EXPECT_EQ(dense.ledger.live()[static_cast<std::size_t>(Category::workspace)], 0);
  }
}

TEST_P(StoreRows, KeepTheCountWhenThePatternMoves) {
  Net net(GetParam());
  std::int64_t before = 0, moved = 0;
  for (const int h : {kEmbedding, kLayer, kOutput}) before += net.non_zeros(h);
  EXPECT_EQ(before, std::llround(0.3 * (2 * kEntries + 3 * 48) * kChannels));
  for (std::int64_t step = 1; step <= 10; ++step) {
    const auto old = net.pattern(kEmbedding);
    net.store->move_pattern(step);
    std::int64_t now = 0;
    for (const int h : {kEmbedding, kLayer, kOutput}) now += net.non_zeros(h);
    EXPECT_EQ(now, before);
    const auto next = net.pattern(kEmbedding);
    for (std::size_t i = 0; i < old.size(); ++i) moved += old[i] != next[i];
  }
  EXPECT_GT(moved, 10);
}

INSTANTIATE_TEST_SUITE_P(, StoreRows, ::testing::Values("bitmap", "csr16", "csr32"),
                         [](const auto& p) { return p.param; });

// ---- which matrices, and how they start

TEST(SparseScope, LayersLeavesVocabulariesDense) {
  const Net layers("layers"), all("bitmap"), dense("dense");
  for (const int h : {kEmbedding, kLayer, kOutput}) {
    EXPECT_EQ(layers.store->compressed(h), h == kLayer);
    EXPECT_TRUE(all.store->compressed(h));
    EXPECT_FALSE(dense.store->compressed(h));
    EXPECT_EQ(layers.non_zeros(h),
              h == kLayer ? std::llround(0.3 * 48 * 3 * kChannels) : kEntries * kChannels);
    EXPECT_NEAR(all.non_zeros(h), 0.3 * static_cast<double>(all.elements(h)), 1);
  }
}

TEST(Initialization, ARowOfZeros) {
  const Net dense("dense");
  for (const int h : {kEmbedding, kLayer}) {
    const Floats weights = dense.weights(h);
    const std::int64_t columns = dense.spec(h).taps * kChannels;
    const auto zeros = std::count(weights.begin(), weights.end(), 0.0f);
    EXPECT_EQ(zeros, h == kEmbedding ? columns : 0);
    EXPECT_EQ(std::count(weights.begin() + columns, weights.begin() + 2 * columns, 0.0f), zeros);
  }
}

}  // namespace
}  // namespace memfloor::testing

// The compressed store by itself: what moving the pattern keeps, over random layers.
#include "techniques/sparsity/compressed_store.h"

#include <algorithm>
#include <numeric>

#include "core/memory_source.h"
#include "techniques/sparsity/bitmap_pattern.h"
#include "techniques/sparsity/csr_pattern.h"
#include "techniques/sparsity/dsr.h"
#include "techniques/sparsity/set.h"
#include "tests/op_testing.h"
#include "tests/sparse_testing.h"
#include "tests/temporary_folder.h"

namespace memfloor::testing {
namespace {

std::unique_ptr<Pattern> pattern_in(SparseIndex index) {
  return index == SparseIndex::bitmap ? make_bitmap_pattern() : make_csr_pattern(index);
}

std::unique_ptr<SparseMethod> method_named(const std::string& name) {
  const RewireSchedule schedule(1000);
  if (name == "set") return std::make_unique<Set>(schedule);
  return std::make_unique<Dsr>(schedule);
}

ParameterSpec layer(std::int64_t outputs, std::int64_t taps, std::int64_t inputs) {
  ParameterSpec spec;
  spec.name = concat("layer ", outputs, "x", taps, "x", inputs);
  spec.outputs = outputs, spec.taps = taps, spec.inputs = inputs;
  spec.init = {Initializer::Kind::normal, 0.1f};
  spec.compressible = true;
  return spec;
}

PrecisionPolicy policy(Dtype weight, Dtype state) {
  PrecisionPolicy policy;
  policy.weight = policy.gradient = weight, policy.optimizer_state = state;
  return policy;
}

// A store on the heap, with two state tensors, as Adam has them.
struct Stored {
  Stored(const std::vector<ParameterSpec>& specs, double sparsity, SparseIndex index,
         const std::string& method, const PrecisionPolicy& precision = {})
      : ledger(heap_memory()), store(sparsity, method_named(method), pattern_in(index)) {
    for (const ParameterSpec& spec : specs) store.add(spec);
    store.allocate(ledger, backend()->tensor_ops(), precision, 2);
    store.initialize(3);
  }

  Floats array(const std::string& name) {
    for (const StateTensor& tensor : store.state())
      if (tensor.name == name) {
        Floats values(static_cast<std::size_t>(tensor.elements));
        to_f32(tensor.data, dtype_of_tensor(tensor), values.data(), tensor.elements);
        return values;
      }
    throw Error("no array " + name);
  }
  // Replaces the elements of an array, in order.
  void write(const std::string& name, const std::function<float(std::int64_t)>& value) {
    for (const StateTensor& tensor : store.state()) {
      if (tensor.name != name) continue;
      Floats values;
      for (std::int64_t i = 0; i < tensor.elements; ++i) values.push_back(value(i));
      from_f32(values.data(), dtype_of_tensor(tensor), tensor.data, tensor.elements);
    }
  }
  std::vector<std::uint8_t> pattern(int h) const {
    std::vector<std::uint8_t> stored(static_cast<std::size_t>(store.specs()[h].elements()));
    store.read_pattern(h, stored.data());
    return stored;
  }
  std::string bytes() {
    std::string all;
    for (const StateTensor& tensor : store.state())
      if (tensor.name.find("pattern") == std::string::npos)
        all.append(static_cast<const char*>(tensor.data), static_cast<std::size_t>(tensor.bytes()));
    return all;
  }

  static Dtype dtype_of_tensor(const StateTensor& tensor) {
    return tensor.type == StoredType::f32   ? Dtype::f32
           : tensor.type == StoredType::f16 ? Dtype::f16
                                            : Dtype::bf16;
  }
  Ledger ledger;
  CompressedStore store;
};

// Dense weights with so many non-zeros in each layer, at places that `seed` decides.
void write_counts(Stored& net, const std::vector<std::int64_t>& counts, std::uint32_t seed) {
  net.store.write_dense([&](int h, float* to) {
    const auto elements = static_cast<std::size_t>(net.store.specs()[h].elements());
    std::vector<std::size_t> order(elements);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return mix(static_cast<std::uint32_t>(a) + seed) < mix(static_cast<std::uint32_t>(b) + seed);
    });
    std::fill(to, to + elements, 0.0f);
    for (std::int64_t i = 0; i < counts[h]; ++i) to[order[i]] = 0.5f;
  });
}

struct Property {
  const char* method;
  SparseIndex index;
  Dtype weight, state;
};
void PrintTo(const Property& p, std::ostream* out) {
  *out << p.method << ", " << index_name(p.index) << ", " << name_of(p.weight);
}

class Reallocation : public ::testing::TestWithParam<Property> {};

// Layers of random sizes; the first has a single weight left, the second lacks one.
TEST_P(Reallocation, KeepsTheCountAndWhatStays) {
  const Property& p = GetParam();
  for (std::uint32_t seed = 0; seed < 4; ++seed) {
    std::vector<ParameterSpec> specs{layer(6, 9, 5), layer(3, 9, 7)};
    for (std::uint32_t l = 0; l < 4; ++l) {
      const std::uint32_t r = mix(100 * seed + l);
      specs.push_back(layer(1 + r % 23, r % 2 ? 9 : 1, 1 + r / 64 % 40));
    }
    std::vector<std::int64_t> counts{1, specs[1].elements() - 1};
    std::int64_t positions = specs[0].elements() + specs[1].elements();
    for (std::size_t l = 2; l < specs.size(); ++l) {
      counts.push_back(1 + specs[l].elements() / 4);
      positions += specs[l].elements();
    }
    const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    const double sparsity = 1 - static_cast<double>(total) / static_cast<double>(positions);
    Stored net(specs, sparsity, p.index, p.method, policy(p.weight, p.state));
    write_counts(net, counts, seed);
    for (int h = 0; h < 6; ++h) {
      const auto stored = net.pattern(h);
      ASSERT_EQ(std::count(stored.begin(), stored.end(), 1), counts[h]);
    }

    std::int64_t moved = 0;
    for (std::int64_t step = 1; step <= 50; ++step) {
      const auto random = [&](std::uint32_t stream, std::int64_t i) {
        return static_cast<float>(mix(static_cast<std::uint32_t>(i) * 977 + stream + 31 * seed +
                                      7 * static_cast<std::uint32_t>(step))) *
                   0x1p-31f -
               1;
      };
      net.write("compressed.weights", [&](std::int64_t i) {
        const float r = random(1, i);
        return r * r * r * 0.1f;  // some of them below the threshold
      });
      net.write("compressed.optimizer_state.0", [&](std::int64_t i) { return random(2, i); });
      net.write("compressed.optimizer_state.1", [&](std::int64_t i) { return 1 + random(3, i); });
      const char* const arrays[] = {"compressed.weights", "compressed.optimizer_state.0",
                                    "compressed.optimizer_state.1"};
      std::vector<Floats> before, after;
      std::vector<std::vector<std::uint8_t>> pattern_before;
      for (const char* name : arrays) before.push_back(net.array(name));
      for (int h = 0; h < 6; ++h) pattern_before.push_back(net.pattern(h));

      net.store.move_pattern(step);

      for (const char* name : arrays) after.push_back(net.array(name));
      std::size_t from = 0, to = 0;
      for (int h = 0; h < 6; ++h) {
        const auto pattern_after = net.pattern(h);
        ASSERT_GE(std::count(pattern_after.begin(), pattern_after.end(), 1), 1) << specs[h].name;
        float largest_dropped = 0, smallest_kept = INFINITY;
        for (std::size_t i = 0; i < pattern_after.size(); ++i) {
          const bool was = pattern_before[h][i], is = pattern_after[i];
          if (was && is) {
            for (int a = 0; a < 3; ++a) ASSERT_EQ(after[a][to], before[a][from]);
            smallest_kept = std::min(smallest_kept, std::abs(before[0][from]));
          } else if (is) {  // grown: from zero, state included
            for (int a = 0; a < 3; ++a) ASSERT_EQ(after[a][to], 0);
            ++moved;
          } else if (was) {
            largest_dropped = std::max(largest_dropped, std::abs(before[0][from]));
          }
          from += was, to += is;
        }
        ASSERT_LE(largest_dropped, smallest_kept);
      }
      ASSERT_EQ(static_cast<std::int64_t>(from), total);
      ASSERT_EQ(static_cast<std::int64_t>(to), total);
    }
    EXPECT_GT(moved, 50) << "this tests little";
  }
}

INSTANTIATE_TEST_SUITE_P(
    , Reallocation,
    ::testing::Values(Property{"dsr", SparseIndex::bitmap, Dtype::f32, Dtype::f32},
                      Property{"dsr", SparseIndex::csr16, Dtype::f16, Dtype::f16},
                      Property{"dsr", SparseIndex::csr32, Dtype::f32, Dtype::f32},
                      Property{"set", SparseIndex::bitmap, Dtype::bf16, Dtype::f32},
                      Property{"set", SparseIndex::csr16, Dtype::f32, Dtype::bf16}));

TEST(CompressedStore, EveryIndexMovesAlike) {
  const std::vector<ParameterSpec> specs{layer(16, 9, 3), layer(7, 9, 16), layer(10, 1, 20)};
  std::vector<std::string> bytes;
  for (const SparseIndex index : {SparseIndex::bitmap, SparseIndex::csr16, SparseIndex::csr32}) {
    Stored net(specs, 0.6, index, "dsr");
    for (std::int64_t step = 1; step <= 10; ++step) net.store.move_pattern(step);
    bytes.push_back(net.bytes());
  }
  EXPECT_TRUE(bytes[0] == bytes[1]);
  EXPECT_TRUE(bytes[0] == bytes[2]);
}

// The same density everywhere, and the values that the dense model has there.
TEST(CompressedStore, StartsAsTheDenseModelDoes) {
  const std::vector<ParameterSpec> specs{layer(16, 9, 16), layer(32, 9, 16), layer(2, 1, 2)};
  Stored net(specs, 0.8, SparseIndex::bitmap, "dsr");
  std::int64_t total = 0;
  for (int h = 0; h < 3; ++h) {
    const auto stored = net.pattern(h);
    Floats dense(stored.size());
    net.store.read_dense(h, dense.data());
    for (std::size_t i = 0; i < stored.size(); ++i)
      EXPECT_EQ(dense[i],
                stored[i] ? initial_value(specs[h], h, static_cast<std::int64_t>(i), 3) : 0.0f);
    const auto count = std::count(stored.begin(), stored.end(), 1);
    EXPECT_NEAR(static_cast<double>(count), 0.2 * static_cast<double>(specs[h].elements()), 1);
    total += count;
  }
  EXPECT_EQ(total, std::llround(0.2 * (16 * 144 + 32 * 144 + 4)));
  EXPECT_EQ(net.array("sparse_method"), Floats{1e-3f});
}

TEST(CompressedStore, WeightsOfAFile) {
  const std::vector<ParameterSpec> specs{layer(10, 1, 10), layer(10, 1, 10)};
  Stored net(specs, 0.5, SparseIndex::csr16, "dsr");  // holds 100
  const auto counts = [&] {
    std::vector<std::int64_t> counts;
    for (int h = 0; h < 2; ++h) {
      const auto stored = net.pattern(h);
      counts.push_back(std::count(stored.begin(), stored.end(), 1));
    }
    return counts;
  };
  write_counts(net, {30, 70}, 1);
  EXPECT_EQ(counts(), (std::vector<std::int64_t>{30, 70}));
  // Fewer: the rest are stored zeros.
  write_counts(net, {20, 70}, 2);
  EXPECT_EQ(counts(), (std::vector<std::int64_t>{30, 70}));
  write_counts(net, {0, 70}, 2);
  EXPECT_EQ(counts(), (std::vector<std::int64_t>{30, 70}));
  const std::string before = net.bytes();
  const std::string refusal = error_of<InputError>([&] { write_counts(net, {31, 70}, 3); });
  EXPECT_NE(refusal.find("101 non-zero weights where --sparsity 0.5 holds 100"), std::string::npos)
      << refusal;
  EXPECT_TRUE(net.bytes() == before);
}

TEST(CompressedStore, ImpossibleOnesAreRefused) {
  const auto refusal = [](const std::vector<ParameterSpec>& specs, double sparsity,
                          SparseIndex index) {
    return error_of<InputError>([&] { Stored(specs, sparsity, index, "dsr"); });
  };
  const std::vector<ParameterSpec> tiny{layer(2, 1, 5), layer(2, 1, 5)};
  EXPECT_EQ(refusal(tiny, 0.9, SparseIndex::bitmap), "");
  EXPECT_NE(refusal(tiny, 0.95, SparseIndex::bitmap).find("one each"), std::string::npos);
  const std::vector<ParameterSpec> wide{layer(1, 9, 7282)};  // 65,538 columns
  EXPECT_NE(refusal(wide, 0.9, SparseIndex::csr16).find("65538"), std::string::npos);
  EXPECT_EQ(refusal(wide, 0.9, SparseIndex::csr32), "");
}

// ---- weights for kernels that read non-zeros alone

TEST(CompressedStore, PacksItsNonZerosWhereTheyFitAndTouchesNothingWhereNot) {
  ParameterSpec dense = layer(16, 9, 16);
  dense.compressible = false;
  const ParameterSpec sparse = layer(32, 9, 16);
  Stored stored({dense, sparse}, 0.8, SparseIndex::bitmap, "dsr");
  NonZeroLayout layout;  // a cell for every output
  layout.cells = sparse.outputs;
  for (std::int64_t o = 0; o < sparse.outputs; ++o) {
    layout.cell.output.push_back(o);
    layout.offset.output.push_back(1000 * o);
  }
  for (std::int64_t t = 0; t < sparse.taps; ++t) {
    layout.cell.tap.push_back(0);
    layout.offset.tap.push_back(t * sparse.inputs);
  }
  for (std::int64_t i = 0; i < sparse.inputs; ++i) {
    layout.cell.input.push_back(0);
    layout.offset.input.push_back(i);
  }

  Floats weight(static_cast<std::size_t>(sparse.elements()));
  stored.store.read_dense(1, weight.data());
  const auto non_zeros = static_cast<std::int64_t>(
      std::count_if(weight.begin(), weight.end(), [](float w) { return w != 0; }));
  const std::int64_t bytes = layout.bytes(non_zeros);
  const Buffer packed(bytes);
  const std::string untouched = packed.bytes(0, static_cast<std::size_t>(bytes));
  EXPECT_FALSE(stored.store.pack_non_zeros(0, layout, packed.data(), bytes));
  EXPECT_FALSE(stored.store.pack_non_zeros(1, layout, packed.data(), bytes - 1));
  EXPECT_EQ(packed.bytes(0, static_cast<std::size_t>(bytes)), untouched);

  ASSERT_TRUE(stored.store.pack_non_zeros(1, layout, packed.data(), bytes));
  const void* const data = packed.data();
  Floats listed(weight.size());
  for (std::int64_t o = 0; o < sparse.outputs; ++o)
    for (std::uint32_t k = layout.starts(data)[o]; k < layout.starts(data)[o + 1]; ++k) {
      const NonZero& entry = layout.entries(data)[k];
      listed.at(static_cast<std::size_t>(o * 9 * 16) + entry.offset % 1000) = entry.value;
    }
  EXPECT_EQ(listed, weight);
}

}  // namespace
}  // namespace memfloor::testing

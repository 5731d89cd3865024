// Sparse training: the byte table, and equality with dense training under a mask, as bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "suite/snapshot.h"
#include "tests/reference_net.h"
#include "tests/temporary_folder.h"

namespace memfloor::testing {
namespace {

// The pattern moves after each of the first 11 updates.
RunSpec sparse_spec(const std::string& method = "dsr", const std::string& index = "bitmap",
                    const std::string& precision = "fp32") {
  RunSpec spec = small_spec(precision, 2);
  spec.sparsity = 0.8, spec.sparse_method = method, spec.sparse_index = index;
  spec.max_steps = 12;
  return spec;
}

void train(Session& session, std::int64_t first, std::int64_t last) {
  for (std::int64_t update = first; update < last; ++update)
    session.trainer->train({update, update / 5, update % 5 * 20, 20}, 0.05f);
}

// ---- bytes

struct IndexBytes {
  const char* index;
  std::int64_t bytes;
};

// K = 290,304 of 1,451,520; 16,090 others; 1,792 output channels.
TEST(SparseMemory, TheTableOfWrn28_2) {
  constexpr std::int64_t kNonZeros = 290304, kOthers = 16090, kRows = 1792;
  for (const auto& [index, bytes] :
       {IndexBytes{"bitmap", 1451520 / 8}, IndexBytes{"csr16", kNonZeros * 2 + (kRows + 1) * 4},
        IndexBytes{"csr32", kNonZeros * 4 + (kRows + 1) * 4}}) {
    RunSpec spec;
    spec.sparsity = 0.8, spec.sparse_index = index, spec.threads = 2;
    const Prediction prediction = predict_session(spec).prediction;
    const ByteSplit& peaks = prediction.training.category_peak;
    EXPECT_EQ(at(peaks, Category::sparse_index), bytes) << index;
    for (const Category c : {Category::weight, Category::gradient, Category::optimizer_state})
      EXPECT_EQ(at(peaks, c), (kNonZeros + kOthers) * 4) << name_of(c);
    EXPECT_EQ(at(peaks, Category::buffer), 28944 + 4);  // and DSR's threshold
    EXPECT_EQ(prediction.training.paper_activation(), 381407264);
    const auto& moves = prediction.layout.phases.at("pattern update");
    ASSERT_EQ(moves.size(), 2u);
    EXPECT_EQ(moves[0].bytes, 1451520 / 8);
    EXPECT_EQ(moves[1].bytes, 147456 / 8);
  }
}

TEST(SparseMemory, MeasuredAsPredicted) {
  for (const char* method : {"dsr", "set", "static"})
    for (const char* index : {"bitmap", "csr16", "csr32"}) {
      const char* precision = *index == 'b' ? "bf16_mixed" : "fp32";
      Session session = small_session(sparse_spec(method, index, precision), 100, 20);
      train(session, 0, 2);
      session.trainer->evaluate(session.task->evaluation_parts().front());
      EXPECT_EQ(prediction_difference(session.prediction, *session.trainer), "")
          << method << ", " << index;
    }
}

TEST(SparseMemory, BytesDoNotDependOnTheDensityOfALayer) {
  Session session = small_session(sparse_spec(), 100, 20);
  const ByteSplit before = session.trainer->ledger().live();
  train(session, 0, 12);
  EXPECT_EQ(session.trainer->ledger().live(), before);
}

// ---- results

class SparseResults : public ::testing::TestWithParam<const char*> {};

std::string trained(RunSpec spec) {
  Session session = small_session(spec, 100, 20);
  train(session, 0, 6);
  std::string bytes;
  ParameterStore& parameters = session.trainer->parameters();
  for (int h = 0; h < static_cast<int>(parameters.specs().size()); ++h) {
    std::vector<float> dense(static_cast<std::size_t>(parameters.specs()[h].elements()));
    parameters.read_dense(h, dense.data());
    bytes.append(reinterpret_cast<const char*>(dense.data()), dense.size() * 4);
  }
  for (const StateTensor& tensor : parameters.state())
    if (tensor.name.find("pattern") == std::string::npos)
      bytes.append(static_cast<const char*>(tensor.data), static_cast<std::size_t>(tensor.bytes()));
  return bytes;
}

TEST_P(SparseResults, DependOnNeitherThreadsNorIndex) {
  RunSpec spec = sparse_spec(GetParam());
  const std::string one = trained(spec);
  for (const int threads : {1, 5}) {
    spec.threads = threads;
    EXPECT_TRUE(trained(spec) == one) << threads << " threads";
  }
  for (const char* index : {"csr16", "csr32"}) {
    spec.sparse_index = index;
    EXPECT_TRUE(trained(spec) == one) << index;
  }
  spec.seed = 2;
  EXPECT_FALSE(trained(spec) == one);
}

TEST_P(SparseResults, GoOnFromASnapshot) {
  const TemporaryFolder folder;
  const std::string path = folder / "snapshot";
  for (const char* index : {"bitmap", "csr16"}) {
    const RunSpec spec = sparse_spec(GetParam(), index);
    Session whole = small_session(spec, 100, 20), first = small_session(spec, 100, 20),
            second = small_session(spec, 100, 20);
    train(whole, 0, 8);
    train(first, 0, 4);
    TrainingState state;
    state.updates = 4;
    write_snapshot(path, state, *first.trainer);
    EXPECT_EQ(read_snapshot(path, *second.trainer).updates, 4);
    train(second, 4, 8);
    EXPECT_TRUE(state_bytes(*second.trainer) == state_bytes(*whole.trainer)) << index;

    // A pattern with a position more, or one out of its row, is told from a sound one.
    for (const StateTensor& tensor : first.trainer->parameters().state()) {
      if (tensor.name.find("pattern") == std::string::npos) continue;
      const std::string bytes(static_cast<const char*>(tensor.data),
                              static_cast<std::size_t>(tensor.bytes()));
      std::string file = read_file(path);
      const std::size_t place = file.find(bytes);
      ASSERT_NE(place, std::string::npos);
      file[place + bytes.size() / 2] = static_cast<char>(file[place + bytes.size() / 2] ^ 0xff);
      write_file(path + ".damaged", file);
      Session third = small_session(spec, 100, 20);
      const std::string refusal =
          error_of<InputError>([&] { read_snapshot(path + ".damaged", *third.trainer); });
      EXPECT_NE(refusal.find("damaged: "), std::string::npos) << tensor.name << ": " << refusal;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, SparseResults, ::testing::Values("dsr", "set", "static"),
                         [](const auto& p) { return std::string(p.param); });

// ---- dense training under a mask

using Mask = std::vector<std::uint8_t>;

// A dense run whose weights and momentum are set to zero outside of masks after every update, and
// DSR's pruning written once more, the plain way.
class MaskedRun {
 public:
  explicit MaskedRun(const RunSpec& spec) : session(small_session(spec, 100, 20)) {
    const auto& specs = session.trainer->parameters().specs();
    for (const StateTensor& tensor : session.trainer->parameters().state()) {
      if (tensor.name == "weights") weights_ = static_cast<float*>(tensor.data);
      if (tensor.name == "optimizer_state.0") momentum_ = static_cast<float*>(tensor.data);
    }
    std::int64_t offset = 0;
    for (const ParameterSpec& parameter : specs) {
      offsets_.push_back(offset);
      if (!parameter.sensitive) offset += parameter.elements();
    }
    masks.resize(specs.size());
  }

  float* weights(int h) { return weights_ + offsets_[h]; }
  float* momentum(int h) { return momentum_ + offsets_[h]; }

  void apply_masks() {
    for (std::size_t h = 0; h < masks.size(); ++h)
      for (std::size_t i = 0; i < masks[h].size(); ++i)
        if (!masks[h][i]) weights(static_cast<int>(h))[i] = momentum(static_cast<int>(h))[i] = 0;
  }

  // Drops by DSR's rule, adapts the threshold; returns how many were dropped.
  std::int64_t prune() {
    std::int64_t dropped = 0, positions = 0;
    for (std::size_t h = 0; h < masks.size(); ++h) {
      Mask& mask = masks[h];
      const float* w = weights(static_cast<int>(h));
      std::size_t largest = 0;
      std::int64_t kept = 0;
      for (std::size_t i = 0; i < mask.size(); ++i) {
        if (!mask[i]) continue;
        if (!mask[largest] || std::abs(w[i]) > std::abs(w[largest])) largest = i;
        if (std::abs(w[i]) < threshold)
          mask[i] = 0, ++dropped;
        else
          ++kept;
      }
      if (!mask.empty() && kept == 0) mask[largest] = 1, --dropped;
      positions += static_cast<std::int64_t>(mask.size());
    }
    const double target = std::round(20000.0 * static_cast<double>(positions) / 1451520);
    if (static_cast<double>(dropped) > 1.1 * target)
      threshold /= 2;
    else if (static_cast<double>(dropped) < 0.9 * target)
      threshold *= 2;
    return dropped;
  }

  Session session;
  std::vector<Mask> masks;  // by handle; empty where all weights stay
  float threshold = 1e-3f;

 private:
  float *weights_ = nullptr, *momentum_ = nullptr;
  std::vector<std::int64_t> offsets_;
};

class MaskedTraining : public ::testing::TestWithParam<const char*> {};

TEST_P(MaskedTraining, IsSparseTrainingAsBytes) {
  Session sparse = small_session(sparse_spec("dsr", "bitmap", GetParam()), 100, 20);
  ParameterStore& store = sparse.trainer->parameters();
  RunSpec dense_spec = sparse_spec("dsr", "bitmap", GetParam());
  dense_spec.sparsity = 0;
  MaskedRun dense(dense_spec);
  const int handles = static_cast<int>(store.specs().size());

  const auto pattern_of = [&](int h) {
    Mask stored(static_cast<std::size_t>(store.specs()[h].elements()));
    store.read_pattern(h, stored.data());
    return stored;
  };
  const auto expect_equal = [&](std::int64_t step) {
    const StateTensor* momentum = nullptr;
    const std::vector<StateTensor> tensors = store.state();
    for (const StateTensor& tensor : tensors)
      if (tensor.name == "compressed.optimizer_state.0") momentum = &tensor;
    const float* next = static_cast<const float*>(momentum->data);
    for (int h = 0; h < handles; ++h) {
      const ParameterSpec& spec = store.specs()[h];
      const auto bytes = static_cast<std::size_t>(spec.elements()) * 4;
      std::vector<float> ours(bytes / 4), theirs(bytes / 4);
      store.read_dense(h, ours.data());
      dense.session.trainer->parameters().read_dense(h, theirs.data());
      ASSERT_EQ(std::memcmp(ours.data(), theirs.data(), bytes), 0)
          << spec.name << " after update " << step;
      if (!spec.compressible) continue;
      for (std::size_t i = 0; i < dense.masks[h].size(); ++i)
        if (dense.masks[h][i]) {
          ASSERT_EQ(*next++, dense.momentum(h)[i]) << spec.name << " after update " << step;
        }
    }
    ASSERT_EQ(next, static_cast<const float*>(momentum->data) + momentum->elements);
    const Tensor &a = sparse.trainer->running().slab(),
                 &b = dense.session.trainer->running().slab();
    ASSERT_EQ(std::memcmp(a.raw(), b.raw(), static_cast<std::size_t>(a.bytes())), 0);
  };

  for (int h = 0; h < handles; ++h)
    if (store.specs()[h].compressible) dense.masks[h] = pattern_of(h);
  dense.apply_masks();
  expect_equal(0);

  std::int64_t moved = 0;
  for (std::int64_t step = 1; step <= 12; ++step) {
    const std::vector<Mask> before = dense.masks;
    train(sparse, step - 1, step);
    train(dense.session, step - 1, step);
    dense.apply_masks();
    if (step < 12) {  // the schedule's end
      std::int64_t grown = 0;
      const std::int64_t dropped = dense.prune();
      for (int h = 0; h < handles; ++h) {
        if (!store.specs()[h].compressible) continue;
        const Mask after = pattern_of(h);
        for (std::size_t i = 0; i < after.size(); ++i) {
          if (before[h][i]) {
            ASSERT_EQ(after[i], dense.masks[h][i]) << "dropped or kept, update " << step;
          } else if (after[i]) {
            ++grown;
          }
        }
        dense.masks[h] = after;
      }
      ASSERT_EQ(grown, dropped);
      moved += grown;
      dense.apply_masks();
    }
    expect_equal(step);
  }
  EXPECT_GT(moved, 1000) << "this tests little";
}

INSTANTIATE_TEST_SUITE_P(, MaskedTraining, ::testing::Values("fp32", "bf16_mixed"),
                         [](const auto& p) { return std::string(p.param); });

// Weight decay alone moves a weight that has no gradient: nothing may move where nothing is stored.
TEST(SparseTraining, StaticPatternsStay) {
  Session session = small_session(sparse_spec("static"), 100, 20);
  const ParameterStore& store = session.trainer->parameters();
  std::vector<Mask> before;
  for (int h = 0; h < static_cast<int>(store.specs().size()); ++h) {
    before.emplace_back(static_cast<std::size_t>(store.specs()[h].elements()));
    store.read_pattern(h, before.back().data());
  }
  train(session, 0, 4);
  for (int h = 0; h < static_cast<int>(store.specs().size()); ++h) {
    Mask after(before[h].size());
    store.read_pattern(h, after.data());
    EXPECT_EQ(after, before[h]);
    std::vector<float> dense(after.size());
    store.read_dense(h, dense.data());
    for (std::size_t i = 0; i < after.size(); ++i)
      if (!after[i]) {
        ASSERT_EQ(dense[i], 0);
      }
  }
}

// What the notes of a result say of the schedule.
TEST(SparseTraining, AScaledScheduleIsNoted) {
  Session session = small_session(sparse_spec(), 100, 20);
  ASSERT_EQ(session.trainer->parameters().notes().size(), 1u);
  EXPECT_NE(session.trainer->parameters().notes()[0].find("this run's 12"), std::string::npos);
  Session fixed = small_session(sparse_spec("static"), 100, 20);
  EXPECT_TRUE(fixed.trainer->parameters().notes().empty());
}

}  // namespace
}  // namespace memfloor::testing

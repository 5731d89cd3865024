// Checkpointing: equal bytes whatever the plan; exactly the declared tensors live; recomputation
// counted exactly.
#include <gtest/gtest.h>

#include <map>

#include "core/philox.h"
#include "engine/dense_store.h"
#include "techniques/registry.h"
#include "tests/random_tree.h"
#include "tests/reference_net.h"
#include "tests/temporary_folder.h"

namespace memfloor::testing {
namespace {

struct Network {
  explicit Network(const std::string& model, int pixels = 32)
      : config(network_of(with_model(model), {pixels, pixels, 3, 10})),
        parameters(std::make_unique<DenseStore>()),
        net(config, *parameters, running) {}
  static RunSpec with_model(const std::string& model) {
    RunSpec spec;
    spec.model = model;
    return validated(spec);
  }

  WideResNetConfig config;
  std::unique_ptr<ParameterStore> parameters;
  RunningStatistics running;
  WideResNet net;
};

std::string trained(Session& session, int updates) {
  for (int update = 0; update < updates; ++update)
    session.trainer->train({update, 0, update * 20 % 100, 20}, 0.05f);
  return state_bytes(*session.trainer);
}

Session checkpointed(const std::string& plan, const char* precision, int threads) {
  RunSpec spec = small_spec(precision, threads);
  spec.checkpoint = plan;
  return small_session(spec, 100, 20);
}

const std::string& kept_all(const char* precision, int updates) {
  static std::map<std::pair<std::string, int>, std::string> results;
  std::string& bytes = results[{precision, updates}];
  if (bytes.empty()) {
    Session session = checkpointed("none", precision, 1);
    bytes = trained(session, updates);
  }
  return bytes;
}

void expect_as_kept_all(const std::string& plan, const char* precision, int threads, int updates) {
  SCOPED_TRACE(concat(plan, ", ", precision, ", ", threads, " threads"));
  Session session = checkpointed(plan, precision, threads);
  EXPECT_TRUE(trained(session, updates) == kept_all(precision, updates));
  session.trainer->evaluate(session.task->evaluation_parts().front());
  EXPECT_EQ(prediction_difference(session.prediction, *session.trainer), "");
}

// ---- equal bytes

class Plans : public ::testing::TestWithParam<const char*> {};

TEST_P(Plans, GiveTheBytesOfKeepAllAndMeasureAsPredicted) {
  for (const char* precision : {"fp32", "bf16_mixed"})
    for (const int threads : {1, 2, 5}) expect_as_kept_all(GetParam(), precision, threads, 2);
}
INSTANTIATE_TEST_SUITE_P(, Plans,
                         ::testing::Values("blocks", "normalization", "segments:1", "segments:3",
                                           "sqrt", "tapered:2", "blocks/normalization",
                                           "segments:2/blocks/normalization",
                                           "recursive/normalization", "plan:2-3,4[4]",
                                           "plan:0-5[2-5[2-3,4]],7"));

TEST(Checkpointing, TwentyUpdatesAreEqual) {
  expect_as_kept_all("segments:2/blocks/normalization", "fp32", 2, 20);
}

TEST(Checkpointing, Wrn28_2IsEqual) {
  const auto bytes = [](const char* plan) {
    RunSpec spec;
    spec.batch_size = 4, spec.microbatch = 3, spec.threads = 2, spec.checkpoint = plan;
    Session session = open_session(spec);
    session.trainer->train({0, 0, 0, 4}, 0.05f);
    session.trainer->train({1, 0, 4, 4}, 0.05f);
    return state_bytes(*session.trainer);
  };
  EXPECT_TRUE(bytes("none") == bytes("segments:4/recursive/normalization"));
}

TEST(Checkpointing, AnyTreeGivesTheBytesOfKeepAll) {
  const Network network("wrn10_1", 16);
  std::uint32_t draws = 0;
  for (std::uint32_t seed = 0; seed < 16; ++seed) {
    const SegmentTree tree = random_tree(0, network.net.chain().size(), seed, draws);
    const std::string text = to_text(tree);
    if (!tree.empty()) {
      EXPECT_EQ(make_segment_tree(text, network.net.chain()), tree) << text;
    }
    expect_as_kept_all(text, seed % 2 ? "bf16_mixed" : "fp32", seed % 4 < 2 ? 1 : 2, 1);
  }
}

// ---- borders anywhere

// Two residual blocks, every op a unit: what a batch norm made crosses borders too, which decides
// where the backward of the batch norm begins (GradientSlot::consumers).
class OpByOp {
 public:
  OpByOp()
      : bn1_(*store_, running_, "bn1", 16),
        conv1_(*store_, "conv1", 16, 32, 3, 2, true),
        short_(*store_, "short", 16, 32, 1, 2, false),
        bn2_(*store_, running_, "bn2", 32),
        conv2_(*store_, "conv2", 32, 32, 3, 1, true),
        bn3_(*store_, running_, "bn3", 32),
        conv3_(*store_, "conv3", 32, 32, 3, 1, true) {
    store_->allocate(ledger_, backend_->tensor_ops(), PrecisionPolicy{}, 0);
    store_->initialize(1);
    running_.allocate(ledger_, backend_->tensor_ops());
    running_.initialize();
    const auto unit = [&](std::function<Values(Context&, Values)> forward) {
      chain_.push_back({"unit", true, std::move(forward)});
    };
    unit([this](Context& c, Values v) { return Values{bn1_(c, v[0])}; });
    unit([this](Context& c, Values v) { return Values{v[0], short_(c, v[0], {})}; });
    unit([this](Context& c, Values v) { return Values{conv1_(c, v[0], {{}, true}), v[1]}; });
    unit([this](Context& c, Values v) { return Values{bn2_(c, v[0]), v[1]}; });
    unit([this](Context& c, Values v) { return Values{conv2_(c, v[0], {v[1], true})}; });
    unit([this](Context& c, Values v) { return Values{bn3_(c, v[0]), v[0]}; });
    unit([this](Context& c, Values v) { return Values{conv3_(c, v[0], {v[1], false})}; });
  }

  // The bytes of all parameters' gradients, of the input's, and of running statistics.
  std::string run(const RetentionPlan& plan) {
    store_->begin_minibatch();
    running_.begin_minibatch();
    Tape tape;
    const PrecisionPolicy precision;
    Context context{*backend_, ledger_, *store_,     running_, precision,
                    plan,      &tape,   Pass::first, {},       {}};
    const Value x = context.make_value({3, 8, 8, 16}, Dtype::f32, "input");
    fill(x->data, 1);
    Value y = plan.run(context, chain_, {x})[0];
    y->gradient->tensor =
        Tensor(ledger_, y->data.shape(), Dtype::f32, Category::transient, "output gradient");
    fill(y->gradient->tensor, 2);
    tape.backward(context);
    EXPECT_EQ(x->gradient->consumers, 0);
    EXPECT_TRUE(context.statistics.empty());
    std::string bytes(static_cast<const char*>(x->gradient->tensor.raw()),
                      static_cast<std::size_t>(x->gradient->tensor.bytes()));
    for (std::size_t h = 0; h < store_->specs().size(); ++h)
      for (const float g : gradient_of(*store_, static_cast<int>(h)))
        bytes.append(reinterpret_cast<const char*>(&g), sizeof g);
    for (std::size_t h = 0; h < running_.entries().size(); ++h) {
      const float* moved = running_.proposed(static_cast<int>(h));
      bytes.append(reinterpret_cast<const char*>(moved), running_.entries()[h].channels * 8);
    }
    return bytes;
  }
  std::size_t units() const { return chain_.size(); }

 private:
  static void fill(const Tensor& tensor, std::uint32_t seed) {
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      tensor.data<float>()[i] =
          uniform(Philox::rounds({static_cast<std::uint32_t>(i), 0, 0, 0}, {seed, 0})[0]) - 0.5f;
  }

  Ledger ledger_{heap_memory()};
  std::shared_ptr<Backend> backend_ = make_cpu_backend(2);
  std::unique_ptr<ParameterStore> store_ = std::make_unique<DenseStore>();
  RunningStatistics running_;
  BatchNormReluLayer bn1_;
  ConvolutionLayer conv1_, short_;
  BatchNormReluLayer bn2_;
  ConvolutionLayer conv2_;
  BatchNormReluLayer bn3_;
  ConvolutionLayer conv3_;
  Chain chain_;
};

TEST(Checkpointing, BordersMayLieBetweenAnyTwoOps) {
  OpByOp net;
  const std::string kept = net.run(KeepAll{});
  std::uint32_t draws = 0;
  for (std::uint32_t seed = 100; seed < 160; ++seed) {
    const SegmentTree tree = random_tree(0, net.units(), seed, draws);
    EXPECT_TRUE(net.run(TreePlan(tree)) == kept) << to_text(tree);
  }
}

// ---- what lives

struct ForwardMemory {
  std::int64_t kept = 0;    // activations when it ends: when the loss keeps its probabilities
  std::int64_t values = 0;  // the most of activations and other values at one instant of it
};

ForwardMemory forward_memory(const EventLog& log) {
  ForwardMemory memory;
  std::map<std::uint32_t, LedgerEvent> blocks;
  std::int64_t activation = 0, transient = 0;
  const auto count = [&](std::uint32_t id, int sign) {
    const LedgerEvent& block = blocks.at(id);
    if (block.category == Category::activation) activation += sign * block.bytes;
    if (block.category == Category::transient) transient += sign * block.bytes;
    memory.values = std::max(memory.values, activation + transient);
  };
  for (const LedgerEvent& event : log) {
    if (event.kind == LedgerEvent::Kind::allocate) {
      blocks[event.id] = event;
      count(event.id, 1);
    } else if (event.kind == LedgerEvent::Kind::free) {
      count(event.id, -1);
    } else if (event.kind == LedgerEvent::Kind::retag) {
      count(event.id, -1);
      blocks.at(event.id).category = event.category;
      count(event.id, 1);
      if (blocks.at(event.id).label == "probabilities") {
        memory.kept = activation;
        return memory;
      }
    }
  }
  ADD_FAILURE() << "no forward pass in the log";
  return memory;
}

ForwardMemory forward_memory(const std::string& plan, std::int64_t images) {
  RunSpec spec;
  spec.batch_size = images, spec.threads = 2, spec.checkpoint = plan;
  return forward_memory(predict_session(spec).prediction.log);
}
std::int64_t kept_by_forward(const std::string& plan, std::int64_t images) {
  return forward_memory(plan, images).kept;
}

// Of one image of WRN-28-2: the network's input, then every block's input, then the head's.
std::vector<std::int64_t> border_elements() {
  std::vector<std::int64_t> borders{3 * 32 * 32, 16 * 32 * 32};
  for (int block = 0; block < 12; ++block) {
    const std::int64_t pixels = 32 >> block / 4;
    borders.push_back(pixels * pixels * (32 << block / 4));
  }
  return borders;
}

constexpr std::int64_t kStatisticsBytes = 2 * 4 * 1808;
constexpr std::int64_t kProbabilitiesBytes = 4 * 10;  // an image

TEST(Checkpointing, BlocksKeepTheirInputsAndNothingElse) {
  std::int64_t elements = 0;
  for (const std::int64_t border : border_elements()) elements += border;
  for (const std::int64_t images : {1, 10})
    EXPECT_EQ(kept_by_forward("blocks", images),
              images * (4 * elements + kProbabilitiesBytes) + kStatisticsBytes);
}

TEST(Checkpointing, SegmentsKeepTheirInputsAndNothingElse) {
  const Network network("wrn28_2");
  const std::vector<std::int64_t> borders = border_elements();
  for (int count = 1; count <= 14; ++count) {
    const std::string plan = concat("segments:", count);
    const SegmentTree tree = make_segment_tree(plan, network.net.chain());
    ASSERT_EQ(static_cast<int>(tree.size()), count);
    std::int64_t elements = 0;
    for (const SegmentNode& segment : tree) elements += borders[(segment.units.begin + 1) / 2];
    EXPECT_EQ(kept_by_forward(plan, 10),
              10 * (4 * elements + kProbabilitiesBytes) + kStatisticsBytes)
        << plan;
  }
}

// Every convolution's output but the shortcuts', which are only added.
TEST(Checkpointing, NormalizationKeepsConvolutionsOutputs) {
  const std::vector<std::int64_t> borders = border_elements();
  std::int64_t elements = borders[0] + borders[1];
  for (std::size_t block = 2; block < borders.size(); ++block) elements += 2 * borders[block];
  EXPECT_EQ(kept_by_forward("normalization", 10),
            10 * (4 * elements + kProbabilitiesBytes) + kStatisticsBytes);
}

// The widest block has its input, what its batch norm made and what its convolution makes.
TEST(Checkpointing, ASegmentsFirstPassFreesWhatItHasRead) {
  const std::int64_t most = forward_memory("segments:1", 10).values;
  const std::int64_t values = 10 * 4 * (3 * 32 * 32 + 3 * 32 * 32 * 32);
  EXPECT_GE(most, values);
  EXPECT_LE(most, values + kStatisticsBytes);
}

// Inner segments change nothing before backward.
TEST(Checkpointing, NestedSegmentsKeepWhatTheOuterOnesKeep) {
  EXPECT_EQ(kept_by_forward("segments:4/blocks/normalization", 10),
            kept_by_forward("segments:4", 10));
}

// The table of docs/memory-accounting.md.
TEST(Checkpointing, DocumentedActivationPeaks) {
  const std::pair<const char*, std::int64_t> table[] = {
      {"normalization", 194625664},
      {"blocks", 106099840},
      {"sqrt", 119259264},
      {"segments:4/blocks/normalization", 57000064}};
  for (const auto& [plan, bytes] : table) {
    RunSpec spec;
    spec.threads = 1, spec.checkpoint = plan;
    EXPECT_EQ(predict_session(spec).prediction.training.paper_activation(), bytes) << plan;
  }
}

TEST(Checkpointing, UnitsStateWhatTheySave) {
  std::int64_t elements = 10;  // the probabilities, which the loss keeps
  const Network network("wrn28_2");
  for (const Unit& unit : network.net.chain()) elements += unit.saved_elements;
  EXPECT_EQ(elements, 953482);
}

TEST(Checkpointing, BalancedSegmentsAreTheBestPartition) {
  const Network network("wrn16_1");
  const Chain& chain = network.net.chain();
  std::vector<std::int64_t> saved;  // by block
  std::int64_t block = 0;
  for (const Unit& unit : chain) {
    block += unit.saved_elements;
    if (unit.block_border) saved.push_back(std::exchange(block, 0));
  }
  const auto largest = [&](unsigned borders) {  // bit i: a cut after block i
    std::int64_t worst = 0, sum = 0;
    for (std::size_t i = 0; i < saved.size(); ++i) {
      worst = std::max(worst, sum += saved[i]);
      if (borders >> i & 1) sum = 0;
    }
    return worst;
  };
  for (int count = 1; count <= static_cast<int>(saved.size()); ++count) {
    std::int64_t best = INT64_MAX, ours = 0;
    for (unsigned borders = 0; borders < 1u << (saved.size() - 1); ++borders)
      if (__builtin_popcount(borders) == count - 1) best = std::min(best, largest(borders));
    for (const SegmentNode& segment : make_segment_tree(concat("segments:", count), chain)) {
      std::int64_t sum = 0;
      for (std::size_t i = segment.units.begin; i < segment.units.end; ++i)
        sum += chain[i].saved_elements;
      ours = std::max(ours, sum);
    }
    EXPECT_EQ(ours, best) << count << " segments";
  }
}

// ---- what is computed again

MultiplyAdds work_of(const std::string& plan) {
  RunSpec spec;
  spec.batch_size = 10, spec.threads = 2, spec.checkpoint = plan;
  return predict_session(spec).prediction.work;
}

TEST(Checkpointing, RecomputationIsCounted) {
  const MultiplyAdds none = work_of("none");
  for (const char* plan : {"none", "normalization", "plan:0", "plan:25", "plan:2,4,25"}) {
    const MultiplyAdds work = work_of(plan);
    EXPECT_EQ(work.recompute, 0) << plan;
    EXPECT_EQ(work.forward, none.forward) << plan;
    EXPECT_EQ(work.backward, none.backward) << plan;
  }
  // A replayed block ends before its second convolution and needs no shortcut: it runs the first.
  const auto convolution = [](std::int64_t pixels, std::int64_t in, std::int64_t out) {
    return 10 * pixels * pixels * 9 * in * out;
  };
  std::int64_t first_convolutions = 0;
  for (int group = 0; group < 3; ++group) {
    const std::int64_t pixels = 32 >> group, channels = 32 << group;
    first_convolutions += convolution(pixels, group ? channels / 2 : 16, channels) +
                          3 * convolution(pixels, channels, channels);
  }
  EXPECT_EQ(work_of("blocks").recompute, first_convolutions);
  EXPECT_EQ(work_of("blocks/normalization").recompute, first_convolutions);
  // One segment of everything stops before the last linear layer.
  EXPECT_EQ(work_of("segments:1").recompute, none.forward - 10 * 128 * 10);
  EXPECT_EQ(none.recomputed_bytes, 0);
  EXPECT_EQ(work_of("normalization").recomputed_bytes,
            10 * 4 *
                (16 * 32 * 32 + 7 * 32 * 32 * 32 + 32 * 32 * 32 + 7 * 64 * 16 * 16 + 64 * 16 * 16 +
                 7 * 128 * 8 * 8 + 128 * 8 * 8 + 128));
}

// ---- plans as text

TEST(Checkpointing, PlansAreWrittenAndRead) {
  const Network network("wrn10_1");
  const Chain& chain = network.net.chain();
  ASSERT_EQ(chain.size(), 8u);
  const auto text = [&](const char* plan) { return to_text(make_segment_tree(plan, chain)); };
  EXPECT_EQ(text("blocks"), "plan:0,1-2,3-4,5-6,7");
  EXPECT_EQ(text("normalization"), "plan:0,1,2,3,4,5,6,7");
  EXPECT_EQ(text("blocks/normalization"), "plan:0,1-2[1,2],3-4[3,4],5-6[5,6],7");
  EXPECT_EQ(text("segments:1/blocks"), "plan:0-7[0,1-2,3-4,5-6,7]");
  EXPECT_EQ(text("segments:5/segments:2"), text("blocks"));
  EXPECT_EQ(text("recursive"), "plan:0-2[0,1-2],3-7[3-4,5-7[5-6,7]]");
  EXPECT_EQ(text("tapered:1"), "plan:0-4,5,6,7");
  EXPECT_EQ(text("tapered:3"), "plan:0,1-2,3-4,5,6,7");
}

TEST(Checkpointing, FaultyPlansAreRefused) {
  const auto refusal = [](const std::string& checkpoint) {
    RunSpec spec;
    spec.model = "wrn10_1", spec.checkpoint = checkpoint;
    return error_of<InputError>([&] { validated(spec); });
  };
  const std::pair<const char*, const char*> faults[] = {
      {"segments:0", "from 1 to 5"},
      {"segments:6", "from 1 to 5"},
      {"segments:x", "from 1 to 5"},
      {"segments:2x", "from 1 to 5"},
      {"segments:", "from 1 to 5"},
      {"segments:99999999999999999999", "from 1 to 5"},
      {"tapered:0", "from 1 to 5"},
      {"tapered:6", "from 1 to 5"},
      {"tapered", "tapered:K"},
      {"segments", "segments:K"},
      {"all", "'all' is not known"},
      {"", "'' is not known"},
      {"blocks/", "'' is not known"},
      {"blocks/none", "'none' is not known"},
      {"blocks:2", "'blocks:2' is not known"},
      {"plan:", "character 6: a unit's number"},
      {"plan:1,", "a unit's number"},
      {"plan:-1", "a unit's number"},
      {"plan:1 ", "a comma or the end"},
      {"plan:8", "the last unit is 7 (head)"},
      {"plan:0-99999999999999999999999", "the last unit is 7 (head)"},
      {"plan:5-3", "not before its first"},
      {"plan:1-4,4-5", "begins before unit 5"},
      {"plan:3,1", "begins before unit 4"},
      {"plan:1-4[0-2]", "begins before unit 1"},
      {"plan:1-4[2-5]", "ends with unit 4"},
      {"plan:1-4[2-3", "a comma or ']'"},
      {"plan:1-4[]", "a unit's number"},
      {"plan:1-4]", "a comma or the end"},
  };
  for (const auto& [checkpoint, words] : faults)
    EXPECT_NE(refusal(checkpoint).find(words), std::string::npos) << refusal(checkpoint);
}

}  // namespace
}  // namespace memfloor::testing

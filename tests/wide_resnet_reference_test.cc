// WideResNets, and their blocks alone, against PyTorch: tests/data/README.md says what the answers
// are and how far PyTorch's own float32 lies from them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "engine/dense_store.h"
#include "models/wide_resnet.h"
#include "tests/reference_net.h"

namespace memfloor::testing {
namespace {

// PyTorch's distance is rounding noise below this (tests/data/README.md, "Tolerances").
constexpr double kDistanceFloor = 2.5e-7;

// Expects a group of answers to be close, and prints how close the worst of them is.
class Closest {
 public:
  explicit Closest(std::string group) : group_(std::move(group)) {}
  ~Closest() {
    std::printf("  %s: at worst %.3g of the bound (%s)\n", group_.c_str(), worst_, name_.c_str());
  }
  void expect(const std::string& name, double distance, double bound) {
    EXPECT_LE(distance, bound) << group_ << " " << name;
    if (!(distance / bound <= worst_)) worst_ = distance / bound, name_ = name;
  }

 private:
  std::string group_, name_;
  double worst_ = 0;
};

void expect_loss(const Dump& dump, const Totals& totals) {
  const double loss = dump.doubles("loss")[0];
  EXPECT_NEAR(totals.mean_loss(), loss, 1e-5 * std::abs(loss));
}

TEST(WideResNetReference, Wrn28_2) {
  const Dump dump("wrn28_2");
  ReferenceNet net(dump, "wrn28_2", 32);
  const std::vector<float> images = dump.input("images");

  EXPECT_LE(dump.answer("eval_logits").largest_difference(net.evaluate(images)), 1e-5);

  expect_loss(dump, net.forward_backward(images, dump.labels()));
  EXPECT_LE(dump.answer("logits").largest_difference(net.logits), 1e-5);

  // No further from float64 than three times PyTorch's float32.
  const auto bound = [](const Answer& answer) {
    return 3 * std::max(answer.torch_distance, kDistanceFloor);
  };
  const ParameterStore& parameters = net.trainer->parameters();
  Closest gradients("gradients");
  for (std::size_t h = 0; h < parameters.specs().size(); ++h) {
    const ParameterSpec& spec = parameters.specs()[h];
    const Answer answer = dump.answer(spec.name + ".grad", spec.elements());
    gradients.expect(spec.name, answer.distance_of(gradient_of(parameters, static_cast<int>(h))),
                     bound(answer));
  }
  Closest statistics("running statistics");
  for (const std::string& name : running_names(net.trainer->running())) {
    const Answer answer = dump.answer(name + ".after");
    statistics.expect(name, answer.distance_of(running_of(net.trainer->running(), name)),
                      bound(answer));
  }
}

class SmallWideResNetReference : public ::testing::TestWithParam<const char*> {};

TEST_P(SmallWideResNetReference, EveryGradient) {
  const Dump dump(GetParam());
  ReferenceNet net(dump, GetParam(), 16);
  const std::vector<float> images = dump.input("images");

  EXPECT_LE(dump.answer("eval_logits").largest_difference(net.evaluate(images)), 1e-5);
  expect_loss(dump, net.forward_backward(images, dump.labels()));
  EXPECT_LE(dump.answer("logits").largest_difference(net.logits), 1e-5);

  const ParameterStore& parameters = net.trainer->parameters();
  Closest gradients("gradients");
  for (std::size_t h = 0; h < parameters.specs().size(); ++h) {
    const ParameterSpec& spec = parameters.specs()[h];
    const Answer answer = dump.answer(spec.name + ".grad");
    gradients.expect(spec.name, answer.distance_of(gradient_of(parameters, static_cast<int>(h))),
                     1e-5);
  }
  Closest statistics("running statistics");
  for (const std::string& name : running_names(net.trainer->running()))
    statistics.expect(
        name, dump.answer(name + ".after").distance_of(running_of(net.trainer->running(), name)),
        1e-5);
}
INSTANTIATE_TEST_SUITE_P(, SmallWideResNetReference, ::testing::Values("wrn10_1", "wrn16_1"),
                         [](const auto& p) { return std::string(p.param); });

// ---- one block alone

struct BlockCase {
  const char* prefix;
  std::int64_t channels_in, channels_out;
  int stride;
  std::int64_t pixels;  // height and width of the input
};
void PrintTo(const BlockCase& c, std::ostream* out) { *out << c.prefix; }
constexpr BlockCase kBlocks[] = {
    {"c16_c32_s1_32px", 16, 32, 1, 32},   {"c32_c32_s1_32px", 32, 32, 1, 32},
    {"c32_c64_s2_32px", 32, 64, 2, 32},   {"c64_c64_s1_16px", 64, 64, 1, 16},
    {"c64_c128_s2_16px", 64, 128, 2, 16}, {"c128_c128_s1_8px", 128, 128, 1, 8},
};

// Forward and backward of one block from the dump's input and output gradient; every result, and
// its distance from the answer, is expected within `bound`.
void expect_block(const BlockCase& c, Dtype dtype, double bound) {
  const Dump dump("blocks", std::string(c.prefix) + ".");
  constexpr std::int64_t kImages = 2;

  Ledger ledger(heap_memory());
  const auto store = std::make_unique<DenseStore>();
  RunningStatistics running;
  WideResNet::Block block;
  block.bn1 = NormReluLayer(Norm::batch, *store, running, "bn1", c.channels_in);
  block.conv1 = ConvolutionLayer(*store, "conv1", c.channels_in, c.channels_out, 3, c.stride, true);
  block.bn2 = NormReluLayer(Norm::batch, *store, running, "bn2", c.channels_out);
  block.conv2 = ConvolutionLayer(*store, "conv2", c.channels_out, c.channels_out, 3, 1, true);
  block.has_shortcut = c.channels_in != c.channels_out || c.stride != 1;
  if (block.has_shortcut)
    block.shortcut =
        ConvolutionLayer(*store, "short", c.channels_in, c.channels_out, 1, c.stride, false);

  const std::shared_ptr<Backend> backend = make_cpu_backend(2);
  store->allocate(ledger, backend->tensor_ops(), PrecisionPolicy{}, 0);
  running.allocate(ledger, backend->tensor_ops());
  load_start(dump, *store, running);
  store->begin_minibatch();
  running.begin_minibatch();

  const PrecisionPolicy precision;
  const KeepAll retention;
  Tape tape;
  Context context{*backend, ledger, *store, running, precision, retention, &tape, Pass::first, {}};
  // A tensor of the dump, NCHW, goes to NHWC memory, and back.
  const auto fill = [&](const char* name, const Tensor& to) {
    const std::vector<float> nhwc = channels_last(dump.input(name), kImages, to.shape()[3]);
    ASSERT_EQ(static_cast<std::int64_t>(nhwc.size()), to.elements());
    with_dtype(dtype, [&](auto element) {
      using T = decltype(element);
      std::transform(nhwc.begin(), nhwc.end(), to.data<T>(), [](float x) { return T(x); });
    });
  };
  const auto nchw = [&](const Tensor& from) {
    std::vector<float> nhwc;
    with_dtype(dtype, [&](auto element) {
      const auto* values = from.data<decltype(element)>();
      for (std::int64_t i = 0; i < from.elements(); ++i)
        nhwc.push_back(static_cast<float>(values[i]));
    });
    return channels_first(nhwc, kImages, from.shape()[3]);
  };

  const Value x = context.make_value({kImages, c.pixels, c.pixels, c.channels_in}, dtype, "input");
  fill("input", x->data);
  const Value y = block.second_half(context, block.first_half(context, {x}))[0];
  Closest close(c.prefix);
  const auto expect = [&](const std::string& name, const std::vector<float>& ours) {
    close.expect(name, dump.answer(name, static_cast<std::int64_t>(ours.size())).distance_of(ours),
                 bound);
  };
  expect("output", nchw(y->data));

  y->gradient->tensor =
      Tensor(ledger, y->data.shape(), dtype, Category::transient, "output gradient");
  fill("output_grad", y->gradient->tensor);
  tape.backward(context);
  expect("input.grad", nchw(x->gradient->tensor));
  for (std::size_t h = 0; h < store->specs().size(); ++h)
    expect(store->specs()[h].name + ".grad", gradient_of(*store, static_cast<int>(h)));
  running.commit();
  for (const std::string& name : running_names(running))
    expect(name + ".after", running_of(running, name));
}

class BlockReference : public ::testing::TestWithParam<BlockCase> {};
TEST_P(BlockReference, Fp32) { expect_block(GetParam(), Dtype::f32, 1e-5); }
// Rounding alone (by 2^-8 at most, 1.6e-3 in the mean, about five times on the longest path) costs
// up to 6e-3. Where a ReLU flips, more: a share f of flips moves gradients by sqrt(f), and up to 1
// in 1000 flips here.
TEST_P(BlockReference, Bf16) { expect_block(GetParam(), Dtype::bf16, 5e-2); }
INSTANTIATE_TEST_SUITE_P(, BlockReference, ::testing::ValuesIn(kBlocks),
                         [](const auto& p) { return std::string(p.param.prefix); });

// ---- networks with BF16 activations

// ReLUs that flip turn a relative rounding error e into one of sqrt(e) in gradients, block after
// block, so cosines fall with depth, for PyTorch 1.13's autocast just as for us: its cosines with
// its own FP32 on these very nets are the yardstick.
struct MixedCase {
  const char* model;
  int pixels;
  double torch_all, torch_worst;  // cosine over all gradients at once, and of the worst parameter
};

void PrintTo(const MixedCase& c, std::ostream* out) { *out << c.model; }

class MixedPrecision : public ::testing::TestWithParam<MixedCase> {};

TEST_P(MixedPrecision, FollowsFp32AsPyTorchsDoes) {
  const MixedCase& c = GetParam();
  const Dump dump(c.model);
  ReferenceNet exact(dump, c.model, c.pixels), rounded(dump, c.model, c.pixels, "bf16_mixed");
  const std::vector<float> images = dump.input("images");
  const double loss = exact.forward_backward(images, dump.labels()).mean_loss();
  const double rounded_loss = rounded.forward_backward(images, dump.labels()).mean_loss();

  const Answer logits{{exact.logits.begin(), exact.logits.end()},
                      static_cast<std::int64_t>(exact.logits.size())};
  const double logit_difference = logits.largest_difference(rounded.logits);
  EXPECT_LE(logit_difference, 3e-2);
  EXPECT_GT(logit_difference, 1e-4) << "nothing was rounded";
  EXPECT_NEAR(rounded_loss, loss, 2e-3 * loss);

  struct Products {
    double ab = 0, aa = 0, bb = 0;
    double cosine() const { return ab / std::sqrt(aa * bb); }
  } all;
  double worst = 1;
  const ParameterStore& parameters = exact.trainer->parameters();
  for (std::size_t h = 0; h < parameters.specs().size(); ++h) {
    const auto a = gradient_of(parameters, static_cast<int>(h));
    const auto b = gradient_of(rounded.trainer->parameters(), static_cast<int>(h));
    Products one;
    for (std::size_t i = 0; i < a.size(); ++i) {
      one.ab += static_cast<double>(a[i]) * b[i];
      one.aa += static_cast<double>(a[i]) * a[i];
      one.bb += static_cast<double>(b[i]) * b[i];
    }
    worst = std::min(worst, one.cosine());
    all.ab += one.ab, all.aa += one.aa, all.bb += one.bb;
  }
  std::printf("  logits differ by %.3g of their scale, the loss by %.3g; cosine %.5f, worst %.5f\n",
              logit_difference, rounded_loss / loss - 1, all.cosine(), worst);
  // 1 - cosine is half the squared relative distance: within 1.25 times PyTorch's distance.
  EXPECT_LE(1 - all.cosine(), 1.5625 * (1 - c.torch_all));
  EXPECT_LE(1 - worst, 1.5625 * (1 - c.torch_worst));
}
INSTANTIATE_TEST_SUITE_P(, MixedPrecision,
                         ::testing::Values(MixedCase{"wrn10_1", 16, 0.99965, 0.99822},
                                           MixedCase{"wrn16_1", 16, 0.99103, 0.94633},
                                           MixedCase{"wrn28_2", 32, 0.94110, 0.85558}),
                         [](const auto& p) { return std::string(p.param.model); });

}  // namespace
}  // namespace memfloor::testing

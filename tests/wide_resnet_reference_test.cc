// WideResNets, and their blocks alone, against PyTorch: tests/data/README.md says what the answers
// are and how far PyTorch's own float32 lies from them.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/dense_store.h"
#include "models/wide_resnet.h"
#include "tests/reference_net.h"

namespace memfloor::testing {
namespace {

// PyTorch's distance is rounding noise below this (tests/data/README.md, "Tolerances").
constexpr double kDistanceFloor = 2.5e-7;

// Collects how close a group of answers is: the worst ratio goes to the test's XML and text.
class Closest {
 public:
  explicit Closest(std::string group) : group_(std::move(group)) {}
  ~Closest() {
    std::printf("  %s: at worst %.3g of the bound (%s)\n", group_.c_str(), worst_, name_.c_str());
  }
  void expect(const std::string& name, double distance, double bound) {
    if (std::getenv("ALL")) std::printf("%s %.3g %.3g\n", name.c_str(), distance, bound);
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

class BlockReference : public ::testing::TestWithParam<BlockCase> {};

TEST_P(BlockReference, OutputAndEveryGradient) {
  const BlockCase& c = GetParam();
  const Dump dump("blocks", std::string(c.prefix) + ".");
  constexpr std::int64_t kImages = 2;

  Ledger ledger(heap_memory());
  const std::unique_ptr<ParameterStore> store = make_dense_store();
  RunningStatistics running;
  WideResNet::Block block;
  block.bn1 = BatchNormReluLayer(*store, running, "bn1", c.channels_in);
  block.conv1 =
      ConvolutionLayer(*store, "conv1", c.channels_in, c.channels_out, 3, c.stride, true);
  block.bn2 = BatchNormReluLayer(*store, running, "bn2", c.channels_out);
  block.conv2 = ConvolutionLayer(*store, "conv2", c.channels_out, c.channels_out, 3, 1, true);
  block.has_shortcut = c.channels_in != c.channels_out || c.stride != 1;
  if (block.has_shortcut)
    block.shortcut =
        ConvolutionLayer(*store, "short", c.channels_in, c.channels_out, 1, c.stride, false);

  const std::shared_ptr<Backend> backend = make_cpu_backend(2);
  store->allocate(ledger, backend->tensor_ops(), 0);
  running.allocate(ledger, backend->tensor_ops());
  load_start(dump, *store, running);
  store->begin_minibatch();
  running.begin_minibatch();

  const PrecisionPolicy precision;
  const KeepAll retention;
  Tape tape;
  Context context{*backend, ledger, *store, running, precision, retention, &tape, Pass::first, {}};
  // Puts a tensor of the dump, NCHW, into NHWC memory.
  const auto fill = [&](const char* name, std::int64_t channels, const Tensor& to) {
    const std::vector<float> nhwc = channels_last(dump.input(name), kImages, channels);
    ASSERT_EQ(static_cast<std::int64_t>(nhwc.size()), to.elements());
    std::copy(nhwc.begin(), nhwc.end(), to.data<float>());
  };
  const auto nchw = [](const Tensor& tensor) {
    const float* from = tensor.data<float>();
    return channels_first({from, from + tensor.elements()}, kImages, tensor.shape()[3]);
  };

  const Value x =
      context.make_value({kImages, c.pixels, c.pixels, c.channels_in}, Dtype::f32, "input");
  fill("input", c.channels_in, x->data);
  const Value y = block.second_half(context, block.first_half(context, {x}))[0];
  Closest close(c.prefix);
  close.expect("output", dump.answer("output", y->data.elements()).distance_of(nchw(y->data)),
               1e-5);

  y->gradient->tensor =
      Tensor(ledger, y->data.shape(), Dtype::f32, Category::transient, "output gradient");
  fill("output_grad", c.channels_out, y->gradient->tensor);
  const std::int64_t input_elements = x->data.elements();
  tape.backward(context);
  close.expect("input.grad",
               dump.answer("input.grad", input_elements).distance_of(nchw(x->gradient->tensor)),
               1e-5);
  for (std::size_t h = 0; h < store->specs().size(); ++h) {
    const ParameterSpec& spec = store->specs()[h];
    const Answer answer = dump.answer(spec.name + ".grad", spec.elements());
    close.expect(spec.name, answer.distance_of(gradient_of(*store, static_cast<int>(h))), 1e-5);
  }
  running.commit();
  for (const std::string& name : running_names(running))
    close.expect(name, dump.answer(name + ".after").distance_of(running_of(running, name)), 1e-5);
}
INSTANTIATE_TEST_SUITE_P(, BlockReference,
                         ::testing::Values(BlockCase{"c16_c32_s1_32px", 16, 32, 1, 32},
                                           BlockCase{"c32_c32_s1_32px", 32, 32, 1, 32},
                                           BlockCase{"c32_c64_s2_32px", 32, 64, 2, 32},
                                           BlockCase{"c64_c64_s1_16px", 64, 64, 1, 16},
                                           BlockCase{"c64_c128_s2_16px", 64, 128, 2, 16},
                                           BlockCase{"c128_c128_s1_8px", 128, 128, 1, 8}),
                         [](const auto& p) { return std::string(p.param.prefix); });

// ---- BF16 activations

class MixedPrecision : public ::testing::TestWithParam<const char*> {};

double cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double product = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    product += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return product / std::sqrt(aa * bb);
}

TEST_P(MixedPrecision, FollowsFp32) {
  const std::string model = GetParam();
  const Dump dump(model);
  const int pixels = model == "wrn28_2" ? 32 : 16;
  ReferenceNet exact(dump, model, pixels), rounded(dump, model, pixels, "bf16_mixed");
  const std::vector<float> images = dump.input("images");
  const Totals exact_totals = exact.forward_backward(images, dump.labels());
  const Totals rounded_totals = rounded.forward_backward(images, dump.labels());

  float largest = 0, difference = 0;
  for (std::size_t i = 0; i < exact.logits.size(); ++i) {
    largest = std::max(largest, std::abs(exact.logits[i]));
    difference = std::max(difference, std::abs(exact.logits[i] - rounded.logits[i]));
  }
  std::printf("  logits: %.3g of their scale; loss: %.3g\n", difference / largest,
              std::abs(rounded_totals.mean_loss() / exact_totals.mean_loss() - 1));
  EXPECT_LE(difference, 3e-2f * largest);
  EXPECT_GT(difference, 0) << "nothing was rounded";
  double worst = 1;
  std::vector<float> all_exact, all_rounded;
  for (std::size_t h = 0; h < exact.trainer->parameters().specs().size(); ++h) {
    const auto a = gradient_of(exact.trainer->parameters(), static_cast<int>(h));
    const auto b = gradient_of(rounded.trainer->parameters(), static_cast<int>(h));
    const double one = cosine(a, b);
    std::printf("  %s %.5f\n", exact.trainer->parameters().specs()[h].name.c_str(), one);
    worst = std::min(worst, one);
    all_exact.insert(all_exact.end(), a.begin(), a.end());
    all_rounded.insert(all_rounded.end(), b.begin(), b.end());
  }
  std::printf("  cosine of gradients: %.5f, of the worst parameter %.5f\n",
              cosine(all_exact, all_rounded), worst);
  EXPECT_GE(worst, 0.99);
}
INSTANTIATE_TEST_SUITE_P(, MixedPrecision, ::testing::Values("wrn10_1", "wrn16_1", "wrn28_2"),
                         [](const auto& p) { return std::string(p.param); });

}  // namespace
}  // namespace memfloor::testing

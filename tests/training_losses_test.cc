// Ten updates from PyTorch's start, on PyTorch's images, against PyTorch's losses.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "tests/reference_net.h"

namespace memfloor::testing {
namespace {

constexpr std::int64_t kSteps = 10;

// Runs the dump's updates and gives the loss before each.
std::vector<double> losses_of(const Dump& dump, ReferenceNet& net) {
  const std::vector<float> images = dump.input("images");  // (steps, samples, 3, h, w)
  const std::vector<std::int32_t> labels = dump.labels();
  const std::size_t image_step = images.size() / kSteps, label_step = labels.size() / kSteps;
  const auto rate = static_cast<float>(dump.doubles("lr")[0]);
  const Sgd sgd(0.9f, 5e-4f, true);
  std::vector<double> losses;
  for (std::size_t step = 0; step < kSteps; ++step) {
    const auto image = images.begin() + static_cast<std::ptrdiff_t>(step * image_step);
    const auto label = labels.begin() + static_cast<std::ptrdiff_t>(step * label_step);
    losses.push_back(net.forward_backward({image, image + static_cast<std::ptrdiff_t>(image_step)},
                                          {label, label + static_cast<std::ptrdiff_t>(label_step)})
                         .mean_loss());
    net.trainer->parameters().update(sgd, {.learning_rate = rate});
  }
  return losses;
}

double worst_difference(const std::vector<double>& losses, const std::vector<double>& expected) {
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double difference = std::abs(losses[i] / expected[i] - 1);
    if (!(difference <= worst)) worst = difference;
  }
  return worst;
}

TEST(TrainingLosses, Wrn28_2) {
  const Dump dump("losses", "wrn28_2.");
  ReferenceNet net(dump, "wrn28_2", 32);
  const double worst = worst_difference(losses_of(dump, net), dump.doubles("losses"));
  std::printf("  worst loss: %.3g\n", worst);
  EXPECT_LE(worst, 1e-4);
}

TEST(TrainingLosses, Wrn10_1) {
  const Dump dump("losses", "wrn10_1.");
  ReferenceNet net(dump, "wrn10_1", 16);
  const double worst = worst_difference(losses_of(dump, net), dump.doubles("losses"));
  std::printf("  worst loss: %.3g\n", worst);
  EXPECT_LE(worst, 1e-5);

  double worst_norm = 0, worst_statistic = 0;
  const ParameterStore& parameters = net.trainer->parameters();
  for (std::size_t h = 0; h < parameters.specs().size(); ++h) {
    const std::string& name = parameters.specs()[h].name;
    double squares = 0;
    for (const float w : weight_of(parameters, static_cast<int>(h)))
      squares += static_cast<double>(w) * w;
    const double norm = dump.doubles(name + ".final_norm")[0];
    const double difference = std::abs(std::sqrt(squares) / norm - 1);
    EXPECT_LE(difference, 1e-5) << name;
    worst_norm = std::max(worst_norm, difference);
  }
  for (const std::string& name : running_names(net.trainer->running())) {
    const double distance =
        dump.answer(name + ".after").distance_of(running_of(net.trainer->running(), name));
    EXPECT_LE(distance, 1e-5) << name;
    worst_statistic = std::max(worst_statistic, distance);
  }
  std::printf("  worst final norm: %.3g; worst running statistic: %.3g\n", worst_norm,
              worst_statistic);
}

}  // namespace
}  // namespace memfloor::testing

#include "models/wide_resnet.h"

namespace memfloor {

WideResNet::WideResNet(const WideResNetConfig& config, ParameterStore& store,
                       RunningStatistics& running) {
  if (config.depth < 10 || (config.depth - 4) % 6 != 0)
    throw InputError(
        concat("a wide ResNet's depth is 6 n + 4 (10, 16, 22, 28, ...), not ", config.depth));
  if (config.width < 1)
    throw InputError(concat("a wide ResNet's width is at least 1, not ", config.width));

  const int blocks_per_group = (config.depth - 4) / 6;
  stem_ = ConvolutionLayer(store, "stem", config.image_channels, 16, 3, 1, false);
  std::int64_t channels = 16;
  for (int group = 0; group < 3; ++group) {
    const std::int64_t out = (16ll << group) * config.width;
    for (int i = 0; i < blocks_per_group; ++i) {
      const std::string name = "blocks." + std::to_string(blocks_.size());
      const int stride = group > 0 && i == 0 ? 2 : 1;
      Block& block = blocks_.emplace_back();
      block.bn1 = BatchNormReluLayer(store, running, name + ".bn1", channels);
      block.conv1 = ConvolutionLayer(store, name + ".conv1", channels, out, 3, stride, true);
      block.bn2 = BatchNormReluLayer(store, running, name + ".bn2", out);
      block.conv2 = ConvolutionLayer(store, name + ".conv2", out, out, 3, 1, true);
      block.has_shortcut = channels != out || stride != 1;
      if (block.has_shortcut)
        block.shortcut = ConvolutionLayer(store, name + ".short", channels, out, 1, stride, false);
      channels = out;
    }
  }
  bn_ = BatchNormReluLayer(store, running, "bn", channels);
  fc_ = LinearLayer(store, "fc", channels, config.classes);

  make_chain(config);
}

// A convolution saves its input; a batch norm + ReLU its input and its output, which is a
// convolution's input again.
void WideResNet::make_chain(const WideResNetConfig& config) {
  std::int64_t height = config.image_height, width = config.image_width;
  chain_.push_back({"stem", true,
                    [this](Context& context, Values in) {
                      return Values{
                          stem_(context, std::move(in[0]), {.residual = {}, .statistics = true})};
                    },
                    height * width * config.image_channels});
  for (const Block& block : blocks_) {
    chain_.push_back(
        {block.conv1.name, false,
         [&block](Context& context, Values in) { return block.first_half(context, std::move(in)); },
         2 * height * width * block.bn1.channels});
    if (block.conv1.stride == 2) height = (height + 1) / 2, width = (width + 1) / 2;
    chain_.push_back({block.conv2.name,
                      true,
                      [&block](Context& context, Values in) {
                        return block.second_half(context, std::move(in));
                      },
                      2 * height * width * block.bn2.channels,
                      {1}});
  }
  chain_.push_back({"head", true,
                    [this](Context& context, Values in) {
                      Value x = bn_(context, std::move(in[0]));
                      x = global_average_pool(context, std::move(x), "pool");
                      return Values{fc_(context, std::move(x))};
                    },
                    (2 * height * width + 1) * bn_.channels});
}

Value WideResNet::forward(Context& context, Value images) const {
  Values in;
  in.push_back(std::move(images));
  return context.retention.run(context, chain_, std::move(in))[0];
}

// Handles are moved along so that a value dies with its last reader.
Values WideResNet::Block::first_half(Context& context, Values inputs) const {
  Value x = std::move(inputs[0]);
  inputs.clear();
  Value a = bn1(context, x);
  Value carried = std::move(x);
  if (has_shortcut) {
    carried.reset();
    carried = shortcut(context, a, {});
  }
  Value c = conv1(context, std::move(a), {.residual = {}, .statistics = true});
  Values outputs;
  outputs.push_back(std::move(c));
  outputs.push_back(std::move(carried));
  return outputs;
}

Values WideResNet::Block::second_half(Context& context, Values inputs) const {
  Value b = bn2(context, std::move(inputs[0]));
  Values outputs;
  outputs.push_back(
      conv2(context, std::move(b), {.residual = std::move(inputs[1]), .statistics = true}));
  return outputs;
}

}  // namespace memfloor

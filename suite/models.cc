#include "suite/models.h"

#include <array>
#include <charconv>

#include "core/error.h"
#include "suite/image_task.h"
#include "suite/run_spec.h"
#include "suite/translation_task.h"

namespace memfloor {

ModelFamily family_of(const std::string& model) {
  if (model.starts_with("wrn")) return ModelFamily::wide_resnet;
  if (model.starts_with("dynamic_conv")) return ModelFamily::dynamic_conv;
  throw InputError(concat("--model '", model,
                          "' is not known; write wrn28_2 (or wrn<depth>_<width>) or dynamic_conv"));
}

const char* name_of(ModelFamily family) {
  return family == ModelFamily::wide_resnet ? "wide_resnet" : "dynamic_conv";
}

WideResNetConfig make_wide_resnet_config(const std::string& name) {
  WideResNetConfig config;
  const char* end = name.data() + name.size();
  if (name.starts_with("wrn")) {
    const auto depth = std::from_chars(name.data() + 3, end, config.depth);
    if (depth.ec == std::errc{} && depth.ptr != end && *depth.ptr == '_') {
      const auto width = std::from_chars(depth.ptr + 1, end, config.width);
      const bool sound = config.depth >= 10 && config.depth <= 1000 &&
                         (config.depth - 4) % 6 == 0 && config.width >= 1 && config.width <= 64;
      if (width.ec == std::errc{} && width.ptr == end && sound) return config;
    }
  }
  throw InputError(
      concat("--model '", name,
             "' is not known; write wrn28_2, or wrn<depth>_<width> with a depth of 6 n + 4"));
}

Norm make_norm(const std::string& name) {
  if (name == "batch") return Norm::batch;
  if (name == "group") return Norm::group;
  throw InputError(concat("--norm '", name, "' is not known; this version knows: batch, group"));
}

namespace {

// "a_b_c" -> three positive numbers; false for another text.
bool parse_sizes(const std::string& text, std::array<std::int64_t, 3>& sizes) {
  const char *at = text.data(), *end = at + text.size();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto [after, error] = std::from_chars(at, end, sizes[i]);
    if (error != std::errc{} || sizes[i] < 1 || sizes[i] > 100000) return false;
    const bool last = i + 1 == sizes.size();
    if (last ? after != end : after == end || *after != '_') return false;
    at = after + 1;
  }
  return true;
}

std::vector<int> kernels(std::int64_t layers) {
  std::vector<int> sizes;
  for (std::int64_t layer = 0; layer < layers; ++layer)
    sizes.push_back(layer < 3 ? (4 << layer) - 1 : 31);
  return sizes;
}

DynamicConvolutionMethod make_method(const std::string& name) {
  if (name.empty() || name == "band") return DynamicConvolutionMethod::band;
  if (name == "direct") return DynamicConvolutionMethod::direct;
  throw InputError(
      concat("--conv-impl '", name, "' is not known; this version knows: band, direct"));
}

}  // namespace

DynamicConvConfig make_dynamic_conv_config(const RunSpec& spec) {
  const std::string family = name_of(ModelFamily::dynamic_conv);
  DynamicConvConfig config;
  if (spec.model != family) {
    std::array<std::int64_t, 3> sizes{};
    if (!parse_sizes(spec.model.substr(family.size()), sizes) || sizes[0] > 100 || sizes[1] > 100 ||
        sizes[2] % 4 != 0)
      throw InputError(concat("--model '", spec.model,
                              "' is not known; write dynamic_conv, or dynamic_conv<encoder layers>_"
                              "<decoder layers>_<channels>, with a multiple of 4 channels"));
    config.encoder_kernels = kernels(sizes[0]), config.decoder_kernels = kernels(sizes[1]);
    config.channels = sizes[2], config.feed_forward = 2 * sizes[2];
  }
  config.method = make_method(spec.conv_impl);
  config.loss.chunk = spec.loss_chunk;
  return config;
}

namespace {

std::shared_ptr<const ImageDataset> open_images(const RunSpec& spec) {
  if (spec.data == "synthetic") return make_synthetic_images(static_cast<std::uint32_t>(spec.seed));
  require_data_dir(spec);
  return open_cifar10(spec.data_dir);
}

std::shared_ptr<const TranslationCorpus> open_text(const RunSpec& spec) {
  if (spec.data == "synthetic") {
    SyntheticTranslation pair;
    pair.sentence_length = spec.sentence_length;
    return make_synthetic_translation(static_cast<std::uint32_t>(spec.seed), pair);
  }
  require_data_dir(spec);
  return open_translation_corpus(spec.data_dir);
}

}  // namespace

void require_data_dir(const RunSpec& spec) {
  if (spec.data == "synthetic" || !spec.data_dir.empty()) return;
  throw InputError(concat("--data ", spec.data, " needs --data-dir, ",
                          spec.data == "cifar10"
                              ? "the folder with the binary files; get them with: "
                                "scripts/fetch_data cifar10"
                              : "a folder made by scripts/prepare_iwslt14"));
}

std::unique_ptr<Task> make_task(const RunSpec& spec, DataUse use) {
  if (family_of(spec.model) == ModelFamily::wide_resnet)
    return std::make_unique<ImageTask>(spec, ImageFormat{}, DataSize{},
                                       use == DataUse::samples ? open_images(spec) : nullptr);
  // Sentences differ in length, so a prediction has to see them.
  return std::make_unique<TranslationTask>(spec, use == DataUse::none ? nullptr : open_text(spec));
}

}  // namespace memfloor

#include "suite/models.h"

#include <charconv>

#include "core/error.h"
#include "suite/image_task.h"
#include "suite/run_spec.h"

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

void make_dynamic_conv_config(const RunSpec&) { throw InputError("pending"); }

namespace {

std::shared_ptr<const ImageDataset> open_images(const RunSpec& spec) {
  if (spec.data == "synthetic") return make_synthetic_images(static_cast<std::uint32_t>(spec.seed));
  if (spec.data_dir.empty())
    throw InputError(
        "--data cifar10 needs --data-dir, the folder with the binary files; get them with: "
        "scripts/fetch_data cifar10");
  return open_cifar10(spec.data_dir);
}

}  // namespace

std::unique_ptr<Task> make_task(const RunSpec& spec, DataUse use) {
  return std::make_unique<ImageTask>(spec, ImageFormat{}, DataSize{},
                                     use == DataUse::samples ? open_images(spec) : nullptr);
}

}  // namespace memfloor

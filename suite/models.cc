#include "suite/models.h"

#include <charconv>

namespace memfloor {

WideResNetConfig make_model_config(const std::string& name) {
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

}  // namespace memfloor

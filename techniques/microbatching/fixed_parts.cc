#include "techniques/microbatching/fixed_parts.h"

#include <algorithm>

namespace memfloor {

std::vector<Part> FixedParts::parts(const std::vector<std::int64_t>& sizes) const {
  std::vector<Part> parts;
  std::int64_t largest = 0;  // of the last part
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::int64_t with = std::max(largest, sizes[i]);
    if (parts.empty() || (parts.back().count + 1) * with > limit_) {
      parts.push_back({static_cast<std::int64_t>(i), 0});
      largest = sizes[i];
    } else {
      largest = with;
    }
    ++parts.back().count;
  }
  return parts;
}

}  // namespace memfloor

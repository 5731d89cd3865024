#include "techniques/microbatching/fixed_parts.h"

#include <algorithm>

namespace memfloor {

std::vector<Part> FixedParts::parts(std::int64_t samples) const {
  std::vector<Part> parts;
  for (std::int64_t first = 0; first < samples; first += samples_)
    parts.push_back({first, std::min(samples_, samples - first)});
  return parts;
}

}  // namespace memfloor

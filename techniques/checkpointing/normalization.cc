#include "techniques/checkpointing/normalization.h"

namespace memfloor {

CutRule every_unit() {
  return {[](const Chain&, UnitRange units) {
    std::vector<UnitRange> parts;
    for (std::size_t i = units.begin; i < units.end; ++i) parts.push_back({i, i + 1});
    return parts;
  }};
}

}  // namespace memfloor

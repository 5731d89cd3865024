#include "techniques/checkpointing/tapered.h"

#include <algorithm>

#include "techniques/checkpointing/blocks.h"
#include "techniques/checkpointing/normalization.h"

namespace memfloor {

CutRule tapered_segments(std::int64_t count) {
  return {[count](const Chain& chain, UnitRange units) {
    const std::vector<UnitRange> blocks = every_block().cut(chain, units);
    std::int64_t largest = 0;
    for (const UnitRange& block : blocks) largest = std::max(largest, saved_elements(chain, block));
    std::size_t taper = units.end;
    for (const UnitRange& block : blocks)
      if (2 * saved_elements(chain, block) > largest) taper = block.end;
    std::vector<UnitRange> parts = balanced_segments(count).cut(chain, {units.begin, taper});
    for (const UnitRange& unit : every_unit().cut(chain, {taper, units.end})) parts.push_back(unit);
    return parts;
  }};
}

}  // namespace memfloor

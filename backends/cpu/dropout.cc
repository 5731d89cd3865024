#include "backends/cpu/dropout.h"

#include <algorithm>
#include <cmath>

#include "backends/cpu/philox_lanes.h"
#include "core/error.h"

namespace memfloor::cpu {

static_assert(kDropoutBlock == PhiloxLanes::kNumbers);

DropoutMasks::DropoutMasks(const Dropout& dropout)
    : dropout_(dropout),
      threshold_(static_cast<std::uint32_t>(std::lround(dropout.probability * 0x1p16f))),
      scale_(1 / (1 - dropout.probability)) {
  MEMFLOOR_CHECK(dropout.probability >= 0 && dropout.probability < 1, "dropout with probability ",
                 dropout.probability);
  MEMFLOOR_CHECK(dropout.site < (1u << 12), "dropout at site ", dropout.site);
}

void DropoutMasks::factors(std::int64_t sentence, std::int64_t position, std::int64_t first,
                           std::int64_t columns, float* factors) const {
  if (!dropout_.active()) {
    std::fill(factors, factors + columns, 1.0f);
    return;
  }
  Philox::Words counter{dropout_.minibatch,
                        dropout_.first_sentence + static_cast<std::uint32_t>(sentence),
                        static_cast<std::uint32_t>(position), 0};
  const std::int64_t end = first + columns;
  for (std::int64_t block = first / kDropoutBlock * kDropoutBlock; block < end;
       block += kDropoutBlock) {
    counter[3] = dropout_.site << 20 | static_cast<std::uint32_t>(block / 8);
    const PhiloxLanes random(dropout_.seed, Purpose::dropout, counter, 3);
    float drawn[kDropoutBlock];
    const bool whole = block >= first && block + kDropoutBlock <= end;
    float* to = whole ? factors + (block - first) : drawn;
    for (int i = 0; i < kDropoutBlock; i += kPart) {
      const auto kept = random.row(i / kLanes, i % kLanes) >= threshold_;
      store_part(to + i, kept ? Part{} + scale_ : Part{});
    }
    if (whole) continue;
    const std::int64_t from = std::max(first, block), until = std::min(end, block + kDropoutBlock);
    std::copy(drawn + (from - block), drawn + (until - block), factors + (from - first));
  }
}

}  // namespace memfloor::cpu

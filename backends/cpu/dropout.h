// The masks of dropout, drawn row by row; see Dropout (backends/dropout.h).
#pragma once

#include <cstdint>

#include "backends/dropout.h"

namespace memfloor::cpu {

/// Columns whose random numbers are made together.
inline constexpr std::int64_t kDropoutBlock = 128;

/// Sixteen random bits decide: an element is dropped where they are below round(probability 2^16).
/// Column c takes them from the Philox counter (minibatch, sentence in the minibatch, position,
/// site 2^20 + c / 128 * 16 + c % 16): of word c % 128 / 32 the lower half where c / 16 is even,
/// else the upper half, an order in which neighbours lie in one vector.
class DropoutMasks {
 public:
  /// Throws where the probability is not in [0, 1) or the site not below 2^12.
  explicit DropoutMasks(const Dropout& dropout);

  /// What columns [first, first + columns) of a row are multiplied with: 0 or 1 / (1 -
  /// probability); 1 where dropout is off. `sentence` counts from the part's first. Columns end
  /// below 2^23.
  void factors(std::int64_t sentence, std::int64_t position, std::int64_t first,
               std::int64_t columns, float* factors) const;

 private:
  Dropout dropout_;
  std::uint32_t threshold_;
  float scale_;
};

}  // namespace memfloor::cpu

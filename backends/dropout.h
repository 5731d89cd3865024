// Dropout whose masks are drawn again wherever they are needed, never stored.
#pragma once

#include <cstdint>

namespace memfloor {

/// Which elements are dropped: a function of the run's seed, the minibatch, the sentence's number
/// in the minibatch, the position in the sentence, the column and the site. How the minibatch is
/// cut into parts, what else is in the part and how many threads there are changes no mask.
struct Dropout {
  float probability = 0;  // 0: off; kept elements are divided by 1 - probability
  std::uint32_t seed = 0;
  std::uint32_t minibatch = 0;       // counted over the whole run
  std::uint32_t first_sentence = 0;  // of the part, in the minibatch
  std::uint32_t site = 0;            // which of the model's dropouts, below 2^12

  bool active() const { return probability > 0; }
};

}  // namespace memfloor

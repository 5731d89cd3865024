// Sets of positions as bits: position p is bit p % 64 of 64-bit word p / 64.
#pragma once

#include <bit>
#include <cstdint>

namespace memfloor::bits {

/// Words that hold `positions` positions.
constexpr std::int64_t words(std::int64_t positions) { return (positions + 63) / 64; }

inline bool test(const std::uint64_t* set, std::int64_t position) {
  return (set[position / 64] >> (position % 64)) & 1;
}
inline void insert(std::uint64_t* set, std::int64_t position) {
  set[position / 64] |= std::uint64_t{1} << (position % 64);
}

/// The word that begins with position `first`, positions outside [begin, end) masked out.
inline std::uint64_t word_at(const std::uint64_t* set, std::int64_t first, std::int64_t begin,
                             std::int64_t end) {
  std::uint64_t word = set[first / 64];
  if (first < begin) word &= ~std::uint64_t{0} << (begin - first);
  if (end - first < 64) word &= (std::uint64_t{1} << (end - first)) - 1;
  return word;
}

/// Calls visit(word, first position of the word) for [begin, end), other positions masked out.
template <class Visit>
void for_each_word(const std::uint64_t* set, std::int64_t begin, std::int64_t end, Visit&& visit) {
  for (std::int64_t first = begin / 64 * 64; first < end; first += 64)
    visit(word_at(set, first, begin, end), first);
}

/// How many positions in [begin, end) are in the set.
inline std::int64_t count(const std::uint64_t* set, std::int64_t begin, std::int64_t end) {
  if (begin >= end) return 0;
  const std::int64_t first = begin / 64, last = (end - 1) / 64;
  std::int64_t sum = std::popcount(word_at(set, 64 * first, begin, end));
  for (std::int64_t w = first + 1; w < last; ++w) sum += std::popcount(set[w]);
  if (last > first) sum += std::popcount(word_at(set, 64 * last, begin, end));
  return sum;
}

/// Calls visit(position) for those in [begin, end) that are in the set, in rising order.
template <class Visit>
void for_each(const std::uint64_t* set, std::int64_t begin, std::int64_t end, Visit&& visit) {
  for_each_word(set, begin, end, [&](std::uint64_t word, std::int64_t first) {
    for (; word != 0; word &= word - 1) visit(first + std::countr_zero(word));
  });
}

/// The same for [0, end), in falling order.
template <class Visit>
void for_each_backwards(const std::uint64_t* set, std::int64_t end, Visit&& visit) {
  for (std::int64_t w = words(end) - 1; w >= 0; --w)
    for (std::uint64_t word = set[w]; word != 0;) {
      const int bit = 63 - std::countl_zero(word);
      visit(64 * w + bit);
      word &= ~(std::uint64_t{1} << bit);
    }
}

}  // namespace memfloor::bits

// What the tests of ops on sentences share.
#pragma once

#include "core/philox.h"
#include "tests/op_testing.h"

namespace memfloor::testing {

inline Sequences sentences(const std::vector<std::int64_t>& lengths) {
  Sequences s;
  for (const std::int64_t length : lengths) s.first_row.push_back(s.rows() + length);
  return s;
}

// Calls body(row, sentence, position).
template <class Body>
void each_row(const Sequences& s, Body&& body) {
  for (std::int64_t i = 0; i < s.count(); ++i)
    for (std::int64_t t = 0; t < s.length(i); ++t) body(s.first_row[i] + t, i, t);
}

inline constexpr Dropout kDropout{
    .probability = 0.3f, .seed = 7, .minibatch = 41, .first_sentence = 5, .site = 19};

// What dropout multiplies an element with, as backends/cpu/dropout.h has it.
inline double dropout_factor(const Dropout& d, std::int64_t sentence, std::int64_t position,
                             std::int64_t column) {
  if (!d.active()) return 1;
  const auto c = static_cast<std::uint32_t>(column);
  const Philox::Words words = Philox(d.seed, Purpose::dropout)(
      {d.minibatch, d.first_sentence + static_cast<std::uint32_t>(sentence),
       static_cast<std::uint32_t>(position), (d.site << 20) + c / 128 * 16 + c % 16});
  const std::uint32_t word = words[c % 128 / 32];
  const std::uint32_t bits = c / 16 % 2 == 0 ? word & 0xffff : word >> 16;
  return bits >= std::lround(d.probability * 65536.0) ? 1 / (1.0 - d.probability) : 0;
}

// A sentence as a part of its own.
inline Dropout moved(Dropout d, std::int64_t sentence) {
  d.first_sentence += static_cast<std::uint32_t>(sentence);
  return d;
}

// Elements [first, last) of rows that have `columns` elements.
inline Floats rows_of(const Floats& values, std::int64_t first, std::int64_t last,
                      std::int64_t columns) {
  return {values.begin() + first * columns, values.begin() + last * columns};
}
inline Floats sentence_of(const Floats& values, const Sequences& s, std::int64_t i,
                          std::int64_t columns) {
  return rows_of(values, s.first_row[i], s.first_row[i + 1], columns);
}

inline std::int64_t bytes_of(std::int64_t elements, Dtype dtype) {
  return elements * static_cast<std::int64_t>(size_of(dtype));
}

inline constexpr Dtype kDtypes[] = {Dtype::f32, Dtype::f16, Dtype::bf16};

}  // namespace memfloor::testing

// Sentences in the rows of a tensor, one after another, without padding: a value of shape (rows,
// channels) holds sentence i in rows [first_row[i], first_row[i + 1]).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace memfloor {

struct Sequences {
  std::vector<std::int64_t> first_row{0};  // of every sentence; then the number of rows

  std::int64_t count() const { return static_cast<std::int64_t>(first_row.size()) - 1; }
  std::int64_t rows() const { return first_row.back(); }
  std::int64_t length(std::int64_t i) const { return first_row[i + 1] - first_row[i]; }
  std::int64_t longest() const {
    std::int64_t most = 0;
    for (std::int64_t i = 0; i < count(); ++i) most = std::max(most, length(i));
    return most;
  }
};

}  // namespace memfloor

// Rows of any width, sixteen elements at a time and then the rest.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "backends/cpu/lanes.h"

namespace memfloor::cpu {

/// All sixteen lanes, or the first `count` of them.
struct WholeLanes {};
struct SomeLanes {
  std::int64_t count;
};

/// Calls body(first element, WholeLanes or SomeLanes) over `elements`. Always inline, so that what
/// the body sums stays in registers.
template <class Body>
[[gnu::always_inline]] inline void for_lanes(std::int64_t elements, Body&& body) {
  std::int64_t i = 0;
  for (; i + kLanes <= elements; i += kLanes) body(i, WholeLanes{});
  if (i < elements) body(i, SomeLanes{elements - i});
}

/// Lanes without an element are `rest`.
template <class T>
Lanes load(const T* from, WholeLanes, float = 0) {
  return load(from);
}
template <class T>
Lanes load(const T* from, SomeLanes some, float rest = 0) {
  T padded[kLanes];
  std::fill(padded, padded + kLanes, T(rest));
  std::memcpy(static_cast<void*>(padded), from, static_cast<std::size_t>(some.count) * sizeof(T));
  return load(padded);
}

template <class T>
void store(T* to, Lanes v, WholeLanes) {
  store(to, v);
}
template <class T>
void store(T* to, Lanes v, SomeLanes some) {
  T padded[kLanes];
  store(padded, v);
  std::memcpy(static_cast<void*>(to), padded, static_cast<std::size_t>(some.count) * sizeof(T));
}

/// v, but 0 in lanes without an element.
inline Lanes only(Lanes v, WholeLanes) { return v; }
inline Lanes only(Lanes v, SomeLanes some) {
  float padded[kLanes];
  store(padded, v);
  return load(padded, some);
}

}  // namespace memfloor::cpu

// Flat conversions and sums between stored formats and f32, run by one thread.
#pragma once

#include "backends/cpu/lanes.h"

namespace memfloor::cpu {

template <class To, class From>
To converted(From value) {
  if constexpr (std::is_same_v<From, To>)
    return value;
  else
    return To(static_cast<float>(value));
}

/// to[i] = f(from[i], to[i]) over whole lanes and the rest.
template <class From, class To, class F>
void map_elements(const From* from, To* to, std::int64_t elements, F&& f) {
  std::int64_t i = 0;
  for (; i + kLanes <= elements; i += kLanes) store(to + i, f(load(from + i), load(to + i)));
  for (; i < elements; ++i)
    to[i] = To(f(broadcast(static_cast<float>(from[i])), broadcast(static_cast<float>(to[i])))[0]);
}

inline void widen(const void* from, Dtype dtype, float* to, std::int64_t elements) {
  with_dtype(dtype, [&](auto element) {
    map_elements(static_cast<const decltype(element)*>(from), to, elements,
                 [](Lanes x, Lanes) { return x; });
  });
}

inline void narrow(const float* from, Dtype dtype, void* to, std::int64_t elements) {
  with_dtype(dtype, [&](auto element) {
    map_elements(from, static_cast<decltype(element)*>(to), elements,
                 [](Lanes x, Lanes) { return x; });
  });
}

/// to += from, where `to` is stored as `dtype`.
inline void add_into(const float* from, Dtype dtype, void* to, std::int64_t elements) {
  with_dtype(dtype, [&](auto element) {
    map_elements(from, static_cast<decltype(element)*>(to), elements,
                 [](Lanes x, Lanes y) { return x + y; });
  });
}

/// to += from, both stored as `dtype`.
inline void add_same(const void* from, Dtype dtype, void* to, std::int64_t elements) {
  with_dtype(dtype, [&](auto element) {
    using T = decltype(element);
    map_elements(static_cast<const T*>(from), static_cast<T*>(to), elements,
                 [](Lanes x, Lanes y) { return x + y; });
  });
}

}  // namespace memfloor::cpu

// Debug builds make the use of dead or unset memory visible: blocks are filled with quiet NaNs (in
// every format we store) when they are placed and when they are freed, and the address sanitizer
// is told which parts of an arena may be touched.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace memfloor {

#ifdef NDEBUG
inline constexpr bool kPoison = false;
#else
inline constexpr bool kPoison = true;
#endif

/// 0xff bytes are NaN as f32, f16 and bf16.
inline void fill_with_garbage(void* data, std::int64_t bytes) {
  if constexpr (kPoison)
    if (data && bytes > 0) std::memset(data, 0xff, static_cast<std::size_t>(bytes));
}

inline void forbid([[maybe_unused]] void* data, [[maybe_unused]] std::int64_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(data, static_cast<std::size_t>(bytes));
#endif
}

inline void permit([[maybe_unused]] void* data, [[maybe_unused]] std::int64_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(data, static_cast<std::size_t>(bytes));
#endif
}

}  // namespace memfloor

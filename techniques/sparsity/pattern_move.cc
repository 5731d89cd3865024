#include "techniques/sparsity/pattern_move.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "core/bits.h"
#include "core/error.h"

namespace memfloor {
namespace {

template <class T>
std::uint32_t magnitude_of(T value) {
  return std::bit_cast<std::uint32_t>(static_cast<float>(value)) & 0x7fffffffu;
}

}  // namespace

std::int64_t count_below(const void* values, Dtype dtype, std::int64_t count, float threshold) {
  std::int64_t sum = 0;
  with_dtype(dtype, [&](auto element) {
    const auto* v = static_cast<const decltype(element)*>(values);
    for (std::int64_t k = 0; k < count; ++k) sum += std::abs(static_cast<float>(v[k])) < threshold;
  });
  return sum;
}

// Radix selection, a byte at a time from the top: no memory but a histogram.
SmallestMagnitudes smallest_magnitudes(const void* values, Dtype dtype, std::int64_t count,
                                       std::int64_t drop) {
  MEMFLOOR_CHECK(drop >= 0 && drop < count, "cannot drop ", drop, " of ", count, " weights");
  SmallestMagnitudes smallest{0, drop};
  with_dtype(dtype, [&](auto element) {
    const auto* v = static_cast<const decltype(element)*>(values);
    for (int shift = 24; shift >= 0; shift -= 8) {
      std::array<std::int64_t, 256> histogram{};
      for (std::int64_t k = 0; k < count; ++k) {
        const std::uint32_t magnitude = magnitude_of(v[k]);
        if (static_cast<std::uint64_t>(magnitude) >> (shift + 8) ==
            static_cast<std::uint64_t>(smallest.key) >> (shift + 8))
          ++histogram[(magnitude >> shift) & 255];
      }
      std::uint32_t byte = 0;
      for (; smallest.ties >= histogram[byte]; ++byte) smallest.ties -= histogram[byte];
      smallest.key |= byte << shift;
    }
  });
  return smallest;
}

std::uint32_t magnitude_bits(const void* values, Dtype dtype, std::int64_t k) {
  return with_dtype(dtype, [&](auto element) {
    return magnitude_of(static_cast<const decltype(element)*>(values)[k]);
  });
}

void draw_positions(const Philox& random, std::uint32_t step, std::uint32_t layer,
                    const std::uint64_t* taken, std::int64_t elements, std::int64_t free,
                    std::int64_t count, std::uint64_t* drawn) {
  MEMFLOOR_CHECK(count <= free && free <= UINT32_MAX, "cannot draw ", count, " of ", free,
                 " positions");
  Philox::Words words{};
  std::int64_t words_of = -1;
  for (std::int64_t position = 0; position < elements && count > 0; ++position) {
    if (bits::test(taken, position)) continue;
    if (position / 4 != words_of) {
      words_of = position / 4;
      words = random({step, layer, static_cast<std::uint32_t>(words_of), 0});
    }
    if (uniform_below(words[position % 4], static_cast<std::uint32_t>(free)) < count) {
      bits::insert(drawn, position);
      --count;
    }
    --free;
  }
  MEMFLOOR_CHECK(count == 0, count, " positions were not there to draw");
}

void choose_next(const MovingLayer& layer, const void* weights, Dtype dtype, std::int64_t drop,
                 std::int64_t grow, const Philox& random, std::uint32_t step,
                 std::uint32_t layer_number, std::uint64_t* old) {
  const std::int64_t elements = layer.elements();
  std::fill_n(layer.next, bits::words(elements), 0);
  std::fill_n(old, bits::words(elements), 0);
  SmallestMagnitudes dropped = smallest_magnitudes(weights, dtype, layer.count, drop);
  for_each_non_zero(layer.pattern, [&](std::int64_t k, std::int64_t position) {
    bits::insert(old, position);
    if (!dropped.take(magnitude_bits(weights, dtype, k))) bits::insert(layer.next, position);
  });
  draw_positions(random, step, layer_number, old, elements, elements - layer.count, grow,
                 layer.next);
}

namespace {

template <class Element>
void follow_in(Element* array, const std::vector<MovingLayer>& layers, std::uint64_t* old) {
  std::int64_t kept = 0, total = 0;
  for (const MovingLayer& layer : layers) {
    for_each_non_zero(layer.pattern, [&](std::int64_t k, std::int64_t position) {
      if (bits::test(layer.next, position)) array[kept++] = array[layer.start + k];
    });
    total += layer.count;
  }
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
    std::fill_n(old, bits::words(layer->elements()), 0);
    for_each_non_zero(layer->pattern,
                      [&](std::int64_t, std::int64_t position) { bits::insert(old, position); });
    bits::for_each_backwards(layer->next, layer->elements(), [&](std::int64_t position) {
      array[--total] = bits::test(old, position) ? array[--kept] : Element{0};
    });
  }
  MEMFLOOR_CHECK(total == 0 && kept == 0, total, " elements of a slab are without a position");
}

}  // namespace

void follow(void* array, std::int64_t element_bytes, const std::vector<MovingLayer>& layers,
            std::uint64_t* old) {
  if (element_bytes == 2) return follow_in(static_cast<std::uint16_t*>(array), layers, old);
  MEMFLOOR_CHECK(element_bytes == 4, "elements of ", element_bytes, " bytes do not follow");
  follow_in(static_cast<std::uint32_t*>(array), layers, old);
}

}  // namespace memfloor

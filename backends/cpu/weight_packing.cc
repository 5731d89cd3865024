#include "backends/cpu/weight_packing.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/convert.h"
#include "backends/cpu/slices.h"
#include "backends/cpu/transpose.h"

namespace memfloor::cpu {
namespace {

using Int = std::int64_t;

// Layouts interleave up to 16 outputs in a cache line: they go to one thread, 16 inputs at a time.
// Whole rows of them, often a power of two apart, would drive each other out of the cache before a
// line is used up.
constexpr Int kBlock = kLanes;

/// Whether kBlock places follow one another.
bool consecutive(const std::vector<Int>& places, Int first) {
  if (first + kBlock > static_cast<Int>(places.size())) return false;
  bool yes = true;
  for (Int n = 1; n < kBlock; ++n) yes &= places[first + n] == places[first] + n;
  return yes;
}

/// A block of (kBlock outputs, kBlock inputs) of rows `stride` apart, where a line holds inputs.
template <class From>
void pack_lines(const From* from, Int stride, const Int* outputs, Int input, float* to) {
  for (Int o = 0; o < kBlock; ++o, from += stride) store(to + outputs[o] + input, load(from));
}

/// The same where a line holds outputs.
template <class From>
void pack_columns(const From* from, Int stride, Int output, const Int* inputs, float* to) {
  for (Int o = 0; o < kBlock; o += kPart)
    for (Int i = 0; i < kBlock; i += kPart) {
      Part rows[kPart];
#pragma GCC unroll 16
      for (int r = 0; r < kPart; ++r) load_part(from + (o + r) * stride + i, rows[r]);
      transpose(rows);
#pragma GCC unroll 16
      for (int r = 0; r < kPart; ++r) store_part(to + output + o + inputs[i + r], rows[r]);
    }
}

template <class From, class To>
void pack_block_row(const From* dense, const WeightLayout& layout, Int first, To* packed) {
  const Int taps = static_cast<Int>(layout.tap.size()),
            inputs = static_cast<Int>(layout.input.size());
  const Int last = std::min(layout.outputs(), first + kBlock);
  const bool outputs_in_lines = consecutive(layout.output, first);
  for (Int t = 0; t < taps; ++t)
    for (Int begin = 0; begin < inputs; begin += kBlock) {
      const Int end = std::min(inputs, begin + kBlock), stride = taps * inputs;
      const From* from = dense + first * stride + t * inputs + begin;
      To* to = packed + layout.tap[t];
      if constexpr (std::is_same_v<To, float>) {
        if (last - first == kBlock && consecutive(layout.input, begin)) {
          pack_lines(from, stride, &layout.output[first], layout.input[begin], to);
          continue;
        }
        if (outputs_in_lines && end - begin == kBlock) {
          pack_columns(from, stride, layout.output[first], &layout.input[begin], to);
          continue;
        }
      }
      for (Int o = first; o < last; ++o, from += stride)
        for (Int i = begin; i < end; ++i)
          to[layout.output[o] + layout.input[i]] = converted<To>(from[i - begin]);
    }
}

}  // namespace

void pack_weights(ThreadPool& pool, const void* dense, Dtype from, const WeightLayout& layout,
                  void* packed) {
  if (layout.padded()) std::memset(packed, 0, static_cast<std::size_t>(layout.bytes()));
  with_dtype(from, [&](auto in) {
    with_dtype(layout.dtype, [&](auto out) {
      pool.parallel_for(ceil_div(layout.outputs(), kBlock), [&](Int block, int) {
        pack_block_row(static_cast<const decltype(in)*>(dense), layout, block * kBlock,
                       static_cast<decltype(out)*>(packed));
      });
    });
  });
}

}  // namespace memfloor::cpu

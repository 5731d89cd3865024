// How a kernel wants a convolution's weights, and how it returns their gradient.
//
// The canonical order of a weight is OHWI: (channels_out, taps, channels_in), taps = kernel *
// kernel, row by row. Kernel libraries want blocked orders of their own; all of them place element
// (o, t, i) at output[o] + tap[t] + input[i], so three small tables describe any of them, and dense
// or compressed weights can be unpacked straight into place.
#pragma once

#include <cstdint>
#include <vector>

#include "core/dtype.h"

namespace memfloor {

/// A number for every element, as the sum of three.
struct WeightPlaces {
  std::vector<std::int64_t> output, tap, input;

  std::int64_t outputs() const { return static_cast<std::int64_t>(output.size()); }
  std::int64_t offset(std::int64_t o, std::int64_t t, std::int64_t i) const {
    return output[o] + tap[t] + input[i];
  }
};

/// Where each element is in a kernel's buffer.
struct WeightLayout : WeightPlaces {
  std::int64_t elements = 0;  // of the whole buffer, padding included
  Dtype dtype = Dtype::f32;

  std::int64_t bytes() const { return elements * static_cast<std::int64_t>(size_of(dtype)); }
  std::int64_t dense_elements() const {
    return static_cast<std::int64_t>(output.size() * tap.size() * input.size());
  }
  bool padded() const { return elements != dense_elements(); }

  /// The canonical order itself.
  static WeightLayout ohwi(std::int64_t outputs, std::int64_t taps, std::int64_t inputs,
                           Dtype dtype) {
    WeightLayout layout;
    for (std::int64_t o = 0; o < outputs; ++o) layout.output.push_back(o * taps * inputs);
    for (std::int64_t t = 0; t < taps; ++t) layout.tap.push_back(t * inputs);
    for (std::int64_t i = 0; i < inputs; ++i) layout.input.push_back(i);
    layout.elements = outputs * taps * inputs;
    layout.dtype = dtype;
    return layout;
  }
};

}  // namespace memfloor

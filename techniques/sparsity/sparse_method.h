// When the pattern of non-zeros moves, and how many weights of which layer it then drops and grows.
// The store does the rest, the same for every method: it drops the smallest magnitudes, grows
// positions at random, and keeps values and optimizer state with their positions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/philox.h"

namespace memfloor {

/// A layer before the pattern moves.
struct LayerCounts {
  std::int64_t elements = 0, non_zeros = 0;
  /// Positions that may grow: those that are zero now. What is dropped now does not come back now.
  std::int64_t room() const { return elements - non_zeros; }
};

/// drop < non_zeros, so that a layer keeps a weight; grow <= room().
struct LayerMove {
  std::int64_t drop = 0, grow = 0;
};

/// What a method decides from.
struct PatternEvent {
  std::int64_t step = 0;            // updates so far
  std::vector<LayerCounts> layers;  // in the order of the model
  /// How many of a layer's stored weights have a magnitude below the threshold.
  std::function<std::int64_t(std::size_t layer, float threshold)> below;
  Philox random{0,
                Purpose::sparse_pattern};  // counters (step, method_counter, ...) are the method's

  static constexpr std::uint32_t kMethodCounter = 0xffffffffu;  // no layer has this number
};

class SparseMethod {
 public:
  virtual ~SparseMethod() = default;

  virtual bool moves() const = 0;
  virtual bool moves_after(std::int64_t step) const = 0;

  /// Numbers that a method keeps from event to event; the store keeps them, snapshots hold them.
  virtual std::int64_t state_size() const { return 0; }
  virtual void initialize(float* /*state*/) const {}

  /// One move a layer; as many weights are grown as are dropped.
  virtual std::vector<LayerMove> plan(const PatternEvent& event, float* state) const = 0;

  /// A sentence for the result, or "".
  virtual std::string note() const { return ""; }
};

}  // namespace memfloor

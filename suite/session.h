// A run made ready: data opened, memory predicted, arena reserved, trainer built.
#pragma once

#include <memory>

#include "suite/predictor.h"

namespace memfloor {

struct Session {
  RunSpec spec;
  std::shared_ptr<const Task> task;
  std::shared_ptr<Backend> backend;
  std::shared_ptr<Predictor> predictor;
  Prediction prediction;
  std::unique_ptr<Trainer> trainer;
  std::vector<std::string> notes;  // on what was chosen, for the result
  std::int64_t library_bytes = 0;  // estimate: what making the primitives added to resident memory
  std::int64_t resident_at_setup = 0;  // anonymous, every primitive made
};

/// Throws InputError for an impossible spec or unreadable data.
Session open_session(const RunSpec& spec);

/// The session's prediction only: reads no data, reserves nothing.
Session predict_session(const RunSpec& spec);

/// An empty string where measured peaks equal the predicted ones in every category, else a
/// sentence.
std::string prediction_difference(const Prediction& prediction, const Trainer& trainer);

}  // namespace memfloor

#include "suite/session.h"

#include <algorithm>

#include "core/error.h"
#include "suite/checkpoint_search.h"
#include "suite/environment.h"
#include "suite/models.h"

namespace memfloor {

namespace {

// Of a validated spec, as the caller gave it.
Session with_prediction(const RunSpec& given, std::shared_ptr<const Task> task) {
  Session session;
  session.spec = given;
  session.task = std::move(task);
  session.notes = session.task->notes();
  session.backend = make_cpu_backend(static_cast<int>(given.threads));
  const std::int64_t before = resident_anonymous_bytes();
  session.spec = with_checkpoint_found(given, *session.task, session.backend);
  if (session.spec.checkpoint != given.checkpoint)
    session.notes.push_back(concat("checkpoint ", given.checkpoint, " chose ",
                                   session.spec.checkpoint,
                                   ": of the plans that fit, the one that recomputes least"));
  session.predictor = std::make_shared<Predictor>(session.spec, *session.task, session.backend);
  session.prediction = session.predictor->predict();
  session.library_bytes = std::max<std::int64_t>(0, resident_anonymous_bytes() - before);
  return session;
}

}  // namespace

Session predict_session(const RunSpec& given) {
  const RunSpec spec = validated(given);
  return with_prediction(spec, make_task(spec, DataUse::sizes));
}

Session open_session(const RunSpec& given) {
  const RunSpec spec = validated(given);
  Session session = with_prediction(spec, make_task(spec, DataUse::samples));
  session.trainer = std::make_unique<Trainer>(
      session.spec, *session.task, *session.backend,
      arena_memory(session.prediction.layout,
                   [predictor = session.predictor](std::string_view phase) {
                     return predictor->plan_phase(phase);
                   }));
  session.trainer->initialize();
  session.resident_at_setup = resident_anonymous_bytes();
  return session;
}

std::string prediction_difference(const Prediction& prediction, const Trainer& trainer) {
  const auto compare = [](const char* when, const MemoryRecord& predicted,
                          const MemoryRecord& measured) {
    if (measured.peak_total == 0) return std::string();  // nothing of the kind ran
    for (int c = 0; c < kCategoryCount; ++c)
      if (predicted.category_peak[c] != measured.category_peak[c] ||
          predicted.at_peak[c] != measured.at_peak[c])
        return concat("the ", when, " peak of ", name_of(static_cast<Category>(c)),
                      " was predicted as ", predicted.category_peak[c], " bytes (",
                      predicted.at_peak[c], " at the total's peak) and measured as ",
                      measured.category_peak[c], " (", measured.at_peak[c], ")");
    return predicted == measured ? std::string()
                                 : concat("the ", when, " record differs from the prediction");
  };
  const std::string training = compare("training", prediction.training, trainer.training_record);
  return !training.empty()
             ? training
             : compare("evaluation", prediction.evaluation, trainer.evaluation_record);
}

}  // namespace memfloor

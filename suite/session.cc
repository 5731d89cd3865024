#include "suite/session.h"

#include <algorithm>

#include "core/error.h"
#include "suite/checkpoint_search.h"
#include "suite/environment.h"

namespace memfloor {

Session predict_session(const RunSpec& given) {
  Session session;
  session.spec = validated(given);
  if (session.spec.test_images > 0)
    session.size.test = std::min(session.size.test, session.spec.test_images);
  session.config = network_of(session.spec);
  session.backend = make_cpu_backend(static_cast<int>(session.spec.threads));
  const std::int64_t before = resident_anonymous_bytes();
  session.spec = with_checkpoint_found(session.spec, session.config, session.size, session.backend);
  if (session.spec.checkpoint != given.checkpoint)
    session.notes.push_back(concat("checkpoint ", given.checkpoint, " chose ",
                                   session.spec.checkpoint,
                                   ": of the plans that fit, the one that recomputes least"));
  session.prediction = predict(session.spec, session.config, session.size, session.backend);
  session.library_bytes = std::max<std::int64_t>(0, resident_anonymous_bytes() - before);
  return session;
}

Session open_session(const RunSpec& given) {
  const RunSpec spec = validated(given);
  std::unique_ptr<ImageDataset> data;
  if (spec.data == "cifar10") {
    if (spec.data_dir.empty())
      throw InputError(
          "--data cifar10 needs --data-dir, the folder with the binary files; get them with: "
          "scripts/fetch_data cifar10");
    data = open_cifar10(spec.data_dir);
  } else {
    data = make_synthetic_images(static_cast<std::uint32_t>(spec.seed));
  }
  Session session = predict_session(spec);
  session.data = std::move(data);
  MEMFLOOR_CHECK(session.data->size(Split::train) == session.size.train &&
                     session.data->size(Split::test) >= session.size.test,
                 "the data set does not have the size that was predicted for");
  session.trainer =
      std::make_unique<Trainer>(session.spec, session.config, session.data.get(), *session.backend,
                                arena_memory(session.prediction.layout));
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

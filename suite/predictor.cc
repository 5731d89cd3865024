#include "suite/predictor.h"

#include <set>

namespace memfloor {

Prediction predict(const RunSpec& spec, const WideResNetConfig& config, const DataSize& size,
                   std::shared_ptr<Backend> target) {
  const std::unique_ptr<Backend> null = make_null_backend(std::move(target));
  Trainer trainer(spec, config, nullptr, *null, no_memory(), true);
  trainer.initialize();

  Prediction prediction;
  const std::int64_t whole = std::min(spec.batch_size, size.train);
  std::set<std::int64_t> minibatches{whole};
  if (size.train % whole != 0) minibatches.insert(size.train % whole);
  for (const std::int64_t samples : minibatches)
    for (int repeat = 0; repeat < 2; ++repeat) {
      trainer.train({0, 0, 0, samples}, 0);
      if (samples == whole) prediction.work = trainer.work;
    }
  trainer.move_pattern();
  const std::int64_t part = std::min(trainer.evaluation_part(), size.test);
  std::set<std::int64_t> parts{part};
  if (size.test % part != 0) parts.insert(size.test % part);
  for (const std::int64_t samples : parts) trainer.evaluate(0, samples);

  prediction.training = trainer.training_record;
  prediction.evaluation = trainer.evaluation_record;
  prediction.log = trainer.ledger().log();
  prediction.layout = plan_layout(prediction.log);
  return prediction;
}

}  // namespace memfloor

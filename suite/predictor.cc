#include "suite/predictor.h"

#include <set>

namespace memfloor {

MultiplyAdds run_every_size(Trainer& trainer, const DataSize& size, float learning_rate) {
  MultiplyAdds work;
  const std::int64_t whole = std::min(trainer.spec().batch_size, size.train);
  std::set<std::int64_t> minibatches{whole};
  if (size.train % whole != 0) minibatches.insert(size.train % whole);
  for (const std::int64_t samples : minibatches)
    for (std::int64_t repeat = 0; repeat < 2; ++repeat) {
      trainer.train({repeat, 0, 0, samples}, learning_rate);
      if (samples == whole) work = trainer.work;
    }
  const std::int64_t part = std::min(trainer.evaluation_part(), size.test);
  std::set<std::int64_t> parts{part};
  if (size.test % part != 0) parts.insert(size.test % part);
  for (const std::int64_t samples : parts) trainer.evaluate(0, samples);
  return work;
}

Prediction predict(const RunSpec& spec, const WideResNetConfig& config, const DataSize& size,
                   std::shared_ptr<Backend> target) {
  const std::unique_ptr<Backend> null = make_null_backend(std::move(target));
  Trainer trainer(spec, config, nullptr, *null, no_memory(), true);
  trainer.initialize();

  Prediction prediction;
  prediction.work = run_every_size(trainer, size, 0);
  prediction.training = trainer.training_record;
  prediction.evaluation = trainer.evaluation_record;
  prediction.log = trainer.ledger().log();
  prediction.layout = plan_layout(prediction.log);
  return prediction;
}

}  // namespace memfloor

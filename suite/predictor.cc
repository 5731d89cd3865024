#include "suite/predictor.h"

#include "core/error.h"

namespace memfloor {

std::vector<std::int64_t> part_sizes(std::int64_t samples, std::int64_t part) {
  if (samples <= part) return {samples};
  if (samples % part == 0) return {part};
  return {part, samples % part};
}

Prediction predict(const RunSpec& spec, const WideResNetConfig& config, const DataSize& size,
                   std::shared_ptr<Backend> target) {
  if (spec.bn_recalibrate > size.train)
    throw InputError(concat("--bn-recalibrate ", spec.bn_recalibrate,
                            " is more than the training set has: ", size.train, " samples"));
  const std::unique_ptr<Backend> null = make_null_backend(std::move(target));
  Trainer trainer(spec, config, nullptr, *null, no_memory(), true);
  trainer.initialize();

  Prediction prediction;
  const std::int64_t whole = std::min(spec.batch_size, size.train);
  for (const std::int64_t samples : part_sizes(size.train, whole))
    for (int repeat = 0; repeat < 2; ++repeat) {
      trainer.train({0, 0, 0, samples}, 0);
      if (samples == whole) prediction.work = trainer.work;
    }
  trainer.move_pattern();
  evaluate_each_size(trainer, size.test);

  prediction.training = trainer.training_record;
  prediction.evaluation = trainer.evaluation_record;
  prediction.log = trainer.ledger().log();
  prediction.layout = plan_layout(prediction.log);
  return prediction;
}

void evaluate_each_size(Trainer& trainer, std::int64_t samples) {
  const std::int64_t part = trainer.evaluation_part();
  if (trainer.spec().bn_recalibrate > 0)
    for (const std::int64_t count : part_sizes(trainer.spec().bn_recalibrate, part))
      trainer.recalibrate(0, count);
  for (const std::int64_t count : part_sizes(samples, part)) trainer.evaluate(0, count);
}

}  // namespace memfloor

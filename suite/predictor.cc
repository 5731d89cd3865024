#include "suite/predictor.h"

#include "core/error.h"

namespace memfloor {
namespace {

// The sizes that occur when `samples` > 0 are cut into parts of at most `part` > 0.
std::vector<std::int64_t> part_sizes(std::int64_t samples, std::int64_t part) {
  if (samples <= part) return {samples};
  if (samples % part == 0) return {part};
  return {part, samples % part};
}

}  // namespace

MultiplyAdds run_every_size(Trainer& trainer, const DataSize& size, float learning_rate) {
  MultiplyAdds work;
  const std::int64_t whole = std::min(trainer.spec().batch_size, size.train);
  for (const std::int64_t samples : part_sizes(size.train, whole))
    for (std::int64_t repeat = 0; repeat < 2; ++repeat) {
      trainer.train({repeat, 0, 0, samples}, learning_rate);
      if (samples == whole) work = trainer.work;
    }
  trainer.move_pattern();
  const std::int64_t part = trainer.evaluation_part();
  if (trainer.spec().bn_recalibrate > 0)
    for (const std::int64_t count : part_sizes(trainer.spec().bn_recalibrate, part))
      trainer.recalibrate(0, count);
  for (const std::int64_t count : part_sizes(size.test, part)) trainer.evaluate(0, count);
  return work;
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
  prediction.work = run_every_size(trainer, size, 0);
  prediction.training = trainer.training_record;
  prediction.evaluation = trainer.evaluation_record;
  prediction.log = trainer.ledger().log();
  prediction.layout = plan_layout(prediction.log);
  return prediction;
}

}  // namespace memfloor

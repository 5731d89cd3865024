#include "suite/predictor.h"

#include <tuple>

namespace memfloor {

std::pair<MultiplyAdds, std::int64_t> run_every_shape(Trainer& trainer, float learning_rate) {
  const Task& task = trainer.task();
  MultiplyAdds largest;
  std::int64_t terms = 0;
  for (const Minibatch& minibatch : task.every_shape()) {
    const Totals totals = trainer.train(minibatch, learning_rate);
    if (trainer.work.forward <= largest.forward) continue;
    largest = trainer.work;
    terms = totals.terms;
  }
  trainer.move_pattern();
  for (const Part& part : every_shape(task, task.recalibration_parts()))
    trainer.recalibrate(0, part);
  for (const Part& part : every_shape(task, task.evaluation_parts())) trainer.evaluate(part);
  return {largest, terms};
}

Prediction predict(const RunSpec& spec, const Task& task, std::shared_ptr<Backend> target) {
  const std::unique_ptr<Backend> null = make_null_backend(std::move(target));
  Trainer trainer(spec, task, *null, no_memory(), true);
  trainer.initialize();

  Prediction prediction;
  std::tie(prediction.work, prediction.work_terms) = run_every_shape(trainer, 0);
  prediction.training = trainer.training_record;
  prediction.evaluation = trainer.evaluation_record;
  prediction.log = trainer.ledger().log();
  prediction.layout = plan_layout(prediction.log);
  return prediction;
}

}  // namespace memfloor

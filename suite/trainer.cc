#include "suite/trainer.h"

#include <algorithm>

#include "suite/recipe.h"
#include "techniques/registry.h"

namespace memfloor {

Trainer::Trainer(const RunSpec& spec, const Task& task, Backend& backend,
                 std::unique_ptr<MemorySource> memory, bool log_events)
    : spec_(spec),
      task_(task),
      backend_(backend),
      precision_(make_precision(spec.precision, spec.rounding)),
      scaler_(make_loss_scaler(precision_, spec.loss_scale, spec.loss_scale_window)),
      batch_plan_(make_batch_plan(task.part_limit())),
      optimizer_(find_recipe(spec).optimizer()),
      ledger_(std::move(memory)),
      parameters_(
          make_parameter_store({spec.sparsity, spec.sparse_method, spec.sparse_index,
                                updates_of(spec, task.minibatches_per_epoch()), spec.sparse_scope,
                                rewire_stop_of(spec, task.minibatches_per_epoch())})),
      network_(task.make_network(*parameters_, running_, precision_)),
      retention_(make_retention_plan(spec.checkpoint, network_->chain())) {
  if (log_events) ledger_.start_log();
  ledger_.set_budget(spec.memory_budget);
  parameters_->allocate(ledger_, backend_.tensor_ops(), precision_, optimizer_->states());
  running_.allocate(ledger_, backend_.tensor_ops());
  sums_ = ledger_.allocate(sizeof(LossSums), Category::buffer, "loss sums");
}

void Trainer::initialize() {
  parameters_->initialize(static_cast<std::uint32_t>(spec_.seed));
  running_.initialize();
}

Context Trainer::context(Ledger& ledger, Tape* tape, Pass pass) {
  return Context{backend_, ledger, *parameters_, running_, precision_, *retention_,
                 tape,     pass,   {},           {},       {}};
}

Totals Trainer::train(const Minibatch& minibatch, float learning_rate) {
  const std::int64_t before = updates_;
  const Totals totals = update(minibatch, learning_rate);
  if (updates_ > before && parameters_->pattern_moves_after(updates_)) move_pattern();
  return totals;
}

void Trainer::move_pattern() {
  if (!parameters_->pattern_moves()) return;
  const Ledger::Phase phase(ledger_, "pattern update", training_record);
  parameters_->move_pattern(updates_);
}

Totals Trainer::update(const Minibatch& minibatch, float learning_rate) {
  const Ledger::Phase phase(ledger_, task_.shape_name(minibatch), training_record);
  parameters_->begin_minibatch();
  running_.begin_minibatch();
  backend_.tensor_ops().zero(sums_.data(), sizeof(LossSums));
  work = {};

  PartRequest request;
  request.seed = static_cast<std::uint32_t>(spec_.seed);
  request.epoch = static_cast<std::uint32_t>(minibatch.epoch);
  request.minibatch = minibatch.number;
  request.minibatch_start = minibatch.start;
  request.shuffle = spec_.order == "shuffled";
  request.augment = spec_.augment;
  const float loss_scale = scaler_->scale();
  const std::int64_t terms = task_.loss_terms(minibatch);
  const float gradient_scale = loss_scale / static_cast<float>(terms);

  for (const Part& part : batch_plan_->parts(task_.sample_sizes(minibatch))) {
    Tape tape;
    Context ctx = context(&tape, Pass::first);
    ctx.place = {request.seed, minibatch.number, part.first};
    request.first = part.first, request.count = part.count;
    stage("forward");
    const std::vector<Block> staged =
        network_->run(ctx, request, LossTarget{sums(), gradient_scale});
    stage("backward");
    tape.backward(ctx);
    work.forward += ctx.work.forward;
    work.backward += ctx.work.backward;
    work.recompute += ctx.work.recompute;
    work.recomputed_bytes += ctx.work.recomputed_bytes;
  }

  stage("update");
  Totals totals = read_sums(terms);
  totals.updated = scaler_->accept(!scaler_->checks() || parameters_->gradients_finite());
  if (totals.updated) {
    parameters_->update(*optimizer_, {learning_rate, loss_scale, request.seed, updates_});
    running_.commit();
    ++updates_;
  }
  return totals;
}

Totals Trainer::evaluate(const Part& part) {
  const Ledger::Phase phase(ledger_, task_.shape_name(part), evaluation_record);
  backend_.tensor_ops().zero(sums_.data(), sizeof(LossSums));
  Context ctx = context(nullptr, Pass::evaluation);
  PartRequest request;
  request.split = Split::test;
  request.first = part.first, request.count = part.count;
  request.shuffle = request.augment = false;
  network_->run(ctx, request, LossTarget{sums(), 0});
  work = ctx.work;
  return read_sums(task_.loss_terms(part));
}

void Trainer::recalibrate(std::int64_t index, const Part& part) {
  const Ledger::Phase phase(ledger_, concat("recalibration/", part.count), evaluation_record);
  running_.begin_recalibration_part(index);
  Context ctx = context(nullptr, Pass::first);
  PartRequest request;
  request.first = part.first, request.count = part.count;
  request.shuffle = request.augment = false;
  network_->run(ctx, request, std::nullopt);
}

void Trainer::with_weights(const std::function<void(Context&)>& body) {
  Ledger ledger(heap_memory());
  const std::int64_t held = ledger_.live_total();
  // A budget that is used up is not the same as none.
  if (spec_.memory_budget > 0)
    ledger.set_budget(std::max<std::int64_t>(1, spec_.memory_budget - held));
  MemoryRecord record;
  {
    const Ledger::Phase phase(ledger, "with weights", record);
    Context ctx = context(ledger, nullptr, Pass::evaluation);
    body(ctx);
  }
  peak_with_weights = std::max(peak_with_weights, held + record.peak_total);
}

Totals Trainer::forward_backward(std::int64_t terms,
                                 const std::function<void(Context&, LossSums*)>& forward) {
  const Ledger::Phase phase(ledger_, concat("test/", terms), training_record);
  parameters_->begin_minibatch();
  running_.begin_minibatch();
  backend_.tensor_ops().zero(sums_.data(), sizeof(LossSums));
  Tape tape;
  Context ctx = context(&tape, Pass::first);
  forward(ctx, sums());
  tape.backward(ctx);
  running_.commit();
  return read_sums(terms);
}

Totals Trainer::read_sums(std::int64_t terms) {
  LossSums sums;
  backend_.tensor_ops().download(&sums, sums_.data(), sizeof sums);
  return {sums.loss, sums.correct, terms, true};
}

}  // namespace memfloor

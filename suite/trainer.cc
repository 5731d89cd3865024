#include "suite/trainer.h"

#include <algorithm>

#include "models/layers.h"
#include "suite/models.h"
#include "suite/recipe.h"
#include "techniques/registry.h"

namespace memfloor {
namespace {

// Of CIFAR-10's training pixels, on [0, 1], as the DSR reference code states them.
constexpr std::array<float, 3> kMean{125.3f / 255, 123.0f / 255, 113.9f / 255};
constexpr std::array<float, 3> kDeviation{63.0f / 255, 62.1f / 255, 66.7f / 255};

}  // namespace

WideResNetConfig network_of(const RunSpec& spec, const ImageFormat& format) {
  WideResNetConfig config = make_model_config(spec.model);
  config.norm = make_norm(spec.norm);
  config.image_height = format.height, config.image_width = format.width;
  config.image_channels = format.channels, config.classes = format.classes;
  return config;
}

Trainer::Trainer(const RunSpec& spec, const WideResNetConfig& config, const ImageDataset* data,
                 Backend& backend, std::unique_ptr<MemorySource> memory, bool log_events)
    : spec_(spec),
      data_(data),
      format_{config.image_height, config.image_width, config.image_channels, config.classes},
      backend_(backend),
      precision_(make_precision(spec.precision, spec.rounding)),
      scaler_(make_loss_scaler(precision_, spec.loss_scale, spec.loss_scale_window)),
      batch_plan_(make_batch_plan(spec.batch_size, spec.microbatch)),
      optimizer_(std::make_unique<Sgd>(Recipe::kMomentum, Recipe::kWeightDecay, true)),
      ledger_(std::move(memory)),
      // Without data nothing trains, and no schedule matters.
      parameters_(make_parameter_store(
          {spec.sparsity, spec.sparse_method, spec.sparse_index,
           length_of(spec, data ? data->size(Split::train) : spec.batch_size).updates,
           spec.sparse_scope, spec.rewire_stop})),
      model_(config, *parameters_, running_),
      retention_(make_retention_plan(spec.checkpoint, model_.chain())) {
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

Context Trainer::context(Tape* tape, Pass pass) {
  return Context{backend_,    ledger_, *parameters_, running_, precision_,
                 *retention_, tape,    pass,         {},       {}};
}

// Bytes and labels come from the loader, the network's input from the bytes, which then go.
Trainer::Staged Trainer::stage(Context& context, const PartRequest& request) {
  Staged staged;
  TensorOps& ops = backend_.tensor_ops();
  const Shape shape{request.count, format_.height, format_.width, format_.channels};
  staged.labels = ledger_.allocate(request.count * 4, Category::input, "labels");
  const Block bytes = ledger_.allocate(shape.elements(), Category::input, "image bytes");
  // Labels lie beside the bytes on their way: one walk over the samples fills both.
  ops.upload(staged.labels.data(), staged.labels.bytes(), [&](void* labels) {
    ops.upload(bytes.data(), bytes.bytes(), [&](void* images) {
      load_part(*data_, request, static_cast<std::uint8_t*>(images),
                static_cast<std::int32_t*>(labels));
    });
  });
  staged.images = context.make_value(shape, precision_.activation, "images", false);
  ops.images_to_tensor(static_cast<const std::uint8_t*>(bytes.data()), shape.elements() / 3, kMean,
                       kDeviation, precision_.activation, staged.images->data.raw());
  return staged;
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
  const Ledger::Phase phase(ledger_, concat("minibatch/", minibatch.samples), training_record);
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
  const float gradient_scale = loss_scale / static_cast<float>(minibatch.samples);

  for (const Part& part : batch_plan_->parts(minibatch.samples)) {
    Tape tape;
    Context ctx = context(&tape, Pass::first);
    request.first = part.first, request.count = part.count;
    Staged staged = stage(ctx, request);
    Value logits = model_.forward(ctx, std::move(staged.images));
    softmax_cross_entropy(ctx, std::move(logits),
                          static_cast<const std::int32_t*>(staged.labels.data()),
                          static_cast<LossSums*>(sums_.data()), gradient_scale);
    tape.backward(ctx);
    work.forward += ctx.work.forward;
    work.backward += ctx.work.backward;
    work.recompute += ctx.work.recompute;
    work.recomputed_bytes += ctx.work.recomputed_bytes;
  }

  Totals totals = read_sums(minibatch.samples);
  totals.updated = scaler_->accept(!scaler_->checks() || parameters_->gradients_finite());
  if (totals.updated) {
    parameters_->update(*optimizer_, {learning_rate, loss_scale, request.seed, updates_});
    running_.commit();
    ++updates_;
  }
  return totals;
}

std::int64_t Trainer::evaluation_part() const {
  return batch_plan_->parts(spec_.batch_size).front().count;
}

Totals Trainer::evaluate(std::int64_t first, std::int64_t count) {
  const Ledger::Phase phase(ledger_, concat("evaluation/", count), evaluation_record);
  backend_.tensor_ops().zero(sums_.data(), sizeof(LossSums));
  Context ctx = context(nullptr, Pass::evaluation);
  PartRequest request;
  request.split = Split::test;
  request.minibatch_start = first, request.count = count;
  request.shuffle = request.augment = false;
  Staged staged = stage(ctx, request);
  Value logits = model_.forward(ctx, std::move(staged.images));
  softmax_cross_entropy(ctx, std::move(logits),
                        static_cast<const std::int32_t*>(staged.labels.data()),
                        static_cast<LossSums*>(sums_.data()), 0);
  work = ctx.work;
  return read_sums(count);
}

void Trainer::recalibrate(std::int64_t first, std::int64_t count) {
  const Ledger::Phase phase(ledger_, concat("recalibration/", count), evaluation_record);
  running_.begin_recalibration_part(first / evaluation_part());
  Context ctx = context(nullptr, Pass::first);
  PartRequest request;
  request.minibatch_start = first, request.count = count;
  request.shuffle = request.augment = false;
  Staged staged = stage(ctx, request);
  model_.forward(ctx, std::move(staged.images));
}

Totals Trainer::forward_backward(const float* images, const std::int32_t* labels,
                                 std::int64_t count, float* logits) {
  const Ledger::Phase phase(ledger_, concat("test/", count), training_record);
  TensorOps& ops = backend_.tensor_ops();
  parameters_->begin_minibatch();
  running_.begin_minibatch();
  ops.zero(sums_.data(), sizeof(LossSums));
  Tape tape;
  Context ctx = context(&tape, Pass::first);
  const Shape shape{count, format_.height, format_.width, format_.channels};
  const Value input = ctx.make_value(shape, precision_.activation, "images", false);
  ops.upload(input->data.raw(), input->data.bytes(), [&](void* to) {
    with_dtype(precision_.activation, [&](auto element) {
      using T = decltype(element);
      std::transform(images, images + shape.elements(), static_cast<T*>(to),
                     [](float x) { return T(x); });
    });
  });
  Value output = model_.forward(ctx, input);
  ops.download(logits, output->data.raw(), output->data.bytes());
  softmax_cross_entropy(ctx, std::move(output), labels, static_cast<LossSums*>(sums_.data()),
                        1 / static_cast<float>(count));
  tape.backward(ctx);
  running_.commit();
  return read_sums(count);
}

Totals Trainer::read_sums(std::int64_t samples) {
  LossSums sums;
  backend_.tensor_ops().download(&sums, sums_.data(), sizeof sums);
  return {sums.loss, sums.correct, samples, true};
}

}  // namespace memfloor

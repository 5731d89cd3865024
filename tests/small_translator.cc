#include "tests/small_translator.h"

#include <numeric>

#include "core/memory_source.h"

namespace memfloor::testing {

std::shared_ptr<const Sequences> sequences_of(const std::vector<std::int64_t>& lengths) {
  auto sequences = std::make_shared<Sequences>();
  for (const std::int64_t length : lengths)
    sequences->first_row.push_back(sequences->rows() + length);
  return sequences;
}

SentencePairs SentencePairs::chosen(const std::vector<std::int64_t>& numbers) const {
  SentencePairs pairs;
  std::vector<std::int64_t> source_lengths, target_lengths;
  const auto append = [](const std::vector<std::int32_t>& from, const Sequences& rows,
                         std::int64_t i, std::vector<std::int32_t>& to) {
    to.insert(to.end(), from.begin() + rows.first_row[i], from.begin() + rows.first_row[i + 1]);
  };
  for (const std::int64_t i : numbers) {
    source_lengths.push_back(source->length(i));
    target_lengths.push_back(target->length(i));
    append(source_tokens, *source, i, pairs.source_tokens);
    append(target_tokens, *target, i, pairs.target_tokens);
    append(labels, *target, i, pairs.labels);
  }
  pairs.source = sequences_of(source_lengths);
  pairs.target = sequences_of(target_lengths);
  return pairs;
}

SentencePairs SentencePairs::part(std::int64_t first, std::int64_t count) const {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), first);
  return chosen(numbers);
}

SentencePairs random_pairs(std::int64_t count, const DynamicConvConfig& config,
                           std::uint32_t seed) {
  std::uint32_t draws = 0;
  const auto below = [&](std::int64_t bound) {
    return uniform_below(Philox::rounds({draws++, 0, 0, 0}, {seed, 1})[0],
                         static_cast<std::uint32_t>(bound));
  };
  SentencePairs pairs;
  std::vector<std::int64_t> source_lengths, target_lengths;
  const auto tokens = [&](std::int64_t n, std::int64_t vocabulary, std::vector<std::int32_t>& to) {
    for (std::int64_t i = 0; i < n; ++i)
      to.push_back(static_cast<std::int32_t>(4 + below(vocabulary - 4)));
  };
  for (std::int64_t i = 0; i < count; ++i) {
    source_lengths.push_back(1 + below(12));
    target_lengths.push_back(1 + below(12));
    tokens(source_lengths.back(), config.source_vocabulary, pairs.source_tokens);
    tokens(target_lengths.back(), config.target_vocabulary, pairs.target_tokens);
    tokens(target_lengths.back(), config.target_vocabulary, pairs.labels);
  }
  pairs.source = sequences_of(source_lengths);
  pairs.target = sequences_of(target_lengths);
  return pairs;
}

DynamicConvConfig small_config() {
  DynamicConvConfig config;
  config.source_vocabulary = 29, config.target_vocabulary = 531;
  config.channels = 24, config.feed_forward = 40, config.heads = 2;
  config.encoder_kernels = {3, 7}, config.decoder_kernels = {3, 4};
  return config;
}

SmallTranslator::SmallTranslator(const Options& options)
    : precision_(make_precision(options.precision)),
      backend_(make_cpu_backend(options.threads)),
      ledger_(heap_memory()),
      store_(make_parameter_store(options.sparsity)),
      model_(options.config, *store_) {
  store_->allocate(ledger_, backend_->tensor_ops(), precision_, adam_.states());
  store_->initialize(options.seed);
}

Context SmallTranslator::context(const RetentionPlan& plan, Tape* tape, Pass pass) {
  return Context{*backend_, ledger_, *store_, running_, precision_, plan, tape, pass};
}

Value SmallTranslator::run(Context& context, const SentencePairs& pairs) const {
  return model_.forward(context, make_text(pairs.source, pairs.source_tokens.data()),
                        make_text(pairs.target, pairs.target_tokens.data()));
}

LossSums SmallTranslator::gradients(const SentencePairs& pairs, std::int64_t parts,
                                    const std::string& plan) {
  const std::unique_ptr<RetentionPlan> retention = make_retention_plan(plan, model_.chain());
  const float scale = 1 / static_cast<float>(pairs.target->rows());
  const std::int64_t count = pairs.count() / parts;
  store_->begin_minibatch();
  work_ = {};
  LossSums sums;
  for (std::int64_t i = 0; i < parts; ++i) {
    const SentencePairs part = pairs.part(i * count, count);
    Tape tape;
    Context ctx = context(*retention, &tape, Pass::first);
    ctx.place = {7, updates_, i * count};
    model_.loss(ctx, run(ctx, part), part.labels.data(), &sums, scale);
    tape.backward(ctx);
    work_.forward += ctx.work.forward;
    work_.backward += ctx.work.backward;
    work_.recompute += ctx.work.recompute;
  }
  return sums;
}

void SmallTranslator::update(float learning_rate) {
  store_->update(adam_, {.learning_rate = learning_rate, .seed = 1, .number = updates_++});
}

void SmallTranslator::in_evaluation(const std::function<void(Context&)>& body) {
  const KeepAll plan;
  Context ctx = context(plan, nullptr, Pass::evaluation);
  body(ctx);
}

LossSums SmallTranslator::evaluate(const SentencePairs& pairs) {
  LossSums sums;
  in_evaluation(
      [&](Context& ctx) { model_.loss(ctx, run(ctx, pairs), pairs.labels.data(), &sums, 0); });
  return sums;
}

std::vector<float> SmallTranslator::evaluated(const std::function<Value(Context&)>& make) {
  std::vector<float> values;
  in_evaluation([&](Context& ctx) {
    const Value x = make(ctx);
    values.resize(static_cast<std::size_t>(x->data.elements()));
    to_f32(x->data.raw(), x->data.dtype(), values.data(), x->data.elements());
  });
  return values;
}

std::vector<float> SmallTranslator::gradient(ParameterStore::Handle handle) const {
  std::vector<float> values(static_cast<std::size_t>(store_->specs()[handle].elements()));
  store_->read_dense_gradient(handle, values.data());
  return values;
}

std::vector<float> SmallTranslator::all_gradients() const {
  std::vector<float> all;
  for (std::size_t h = 0; h < store_->specs().size(); ++h) {
    const std::vector<float> one = gradient(static_cast<ParameterStore::Handle>(h));
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

}  // namespace memfloor::testing

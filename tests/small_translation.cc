#include "tests/small_translation.h"

#include "core/memory_source.h"

namespace memfloor::testing {

RunSpec translation_spec(const std::string& precision, int threads) {
  RunSpec spec;
  spec.model = "dynamic_conv2_2_32", spec.precision = precision, spec.threads = threads;
  spec.max_tokens = 400;
  return spec;
}

RunSpec scaled_down(RunSpec spec) {
  const RunSpec small = translation_spec();
  spec.model = small.model, spec.threads = small.threads, spec.max_tokens = small.max_tokens;
  if (spec.microbatch_tokens > 0) spec.microbatch_tokens = 90;
  if (spec.loss_chunk > 0) spec.loss_chunk = 16;
  return spec;
}

Session translation_session(const RunSpec& spec, const SyntheticTranslation& sentences,
                            Planned planned) {
  Session session;
  session.spec = validated(spec);
  session.task = std::make_shared<TranslationTask>(
      session.spec, make_synthetic_translation(static_cast<std::uint32_t>(spec.seed), sentences));
  session.backend = make_cpu_backend(static_cast<int>(session.spec.threads));
  session.predictor = std::make_shared<Predictor>(session.spec, *session.task, session.backend);
  session.prediction = session.predictor->predict();
  ArenaLayout layout = session.prediction.layout;
  if (planned == Planned::on_demand) layout.phases.clear();
  session.trainer = std::make_unique<Trainer>(
      session.spec, *session.task, *session.backend,
      arena_memory(std::move(layout), [predictor = session.predictor](std::string_view phase) {
        return predictor->plan_phase(phase);
      }));
  session.trainer->initialize();
  return session;
}

}  // namespace memfloor::testing

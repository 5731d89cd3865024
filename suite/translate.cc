#include "suite/translate.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "data_loaders/bpe.h"
#include "suite/bleu.h"
#include "suite/progress_line.h"
#include "techniques/registry.h"

namespace memfloor {
namespace {

constexpr std::int64_t kBatchSentences = 128;  // fairseq's, in its recipe for IWSLT'14
constexpr std::int64_t kSamples = 5;

// The best translations of some pairs.
std::vector<Translation> translate_part(Trainer& trainer, const TranslationTask& task, Split split,
                                        std::span<const std::int32_t> pairs,
                                        const BeamOptions& options) {
  const auto& network = dynamic_cast<const TranslationNetwork&>(trainer.network());
  const auto source = std::make_shared<const Sequences>(
      Sequences{first_rows(task.corpus(), split, Side::source, pairs)});
  std::vector<Translation> translations;
  trainer.with_weights([&](Context& context) {
    const Block tokens =
        context.ledger.allocate(source->rows() * 4, Category::input, "source tokens");
    context.backend.tensor_ops().upload(tokens.data(), tokens.bytes(), [&](void* host) {
      for (std::size_t i = 0; i < pairs.size(); ++i)
        task.corpus().read(split, Side::source, pairs[i],
                           static_cast<std::int32_t*>(host) + source->first_row[i]);
    });
    translations =
        beam_search(context, network.model(),
                    make_text(source, static_cast<const std::int32_t*>(tokens.data())), options);
  });
  return translations;
}

}  // namespace

std::string text_of(const TranslationCorpus& corpus, Side side,
                    const std::vector<std::int32_t>& tokens) {
  std::string line;
  for (const std::int32_t token : tokens) {
    if (!line.empty()) line += ' ';
    line += corpus.word(side, token);
  }
  return without_bpe(line);
}

std::vector<std::string> translate(Trainer& trainer, const TranslationTask& task, Split split,
                                   std::int64_t sentences, const BeamOptions& options) {
  const TranslationCorpus& corpus = task.corpus();
  const std::int64_t size = corpus.size(split);
  const std::int64_t wanted = sentences > 0 ? std::min(sentences, size) : size;
  const TokenBatches batches =
      evaluation_batches(corpus, split, trainer.spec().max_tokens, kBatchSentences);
  const std::unique_ptr<BatchPlan> plan = make_batch_plan(task.part_limit());

  std::vector<std::string> lines(static_cast<std::size_t>(wanted));
  ProgressLine progress(wanted, 0);
  std::int64_t done = 0;
  for (std::int64_t batch = 0; batch < batches.count(); ++batch) {
    std::vector<std::int32_t> pairs;
    std::vector<std::int64_t> sizes;
    for (const std::int32_t pair : batches.sentences(batch)) {
      if (pair >= wanted) continue;
      pairs.push_back(pair);
      sizes.push_back(corpus.length(split, Side::source, pair));
    }
    if (pairs.empty()) continue;
    for (const Part& part : plan->parts(sizes)) {
      const auto those = std::span<const std::int32_t>(pairs).subspan(part.first, part.count);
      const std::vector<Translation> best = translate_part(trainer, task, split, those, options);
      for (std::size_t i = 0; i < best.size(); ++i)
        lines[static_cast<std::size_t>(those[i])] = text_of(corpus, Side::target, best[i].tokens);
      progress.show(done += part.count, "sentences translated ");
    }
  }
  return lines;
}

nlohmann::json score_translation(Trainer& trainer, const TranslationTask& task,
                                 std::int64_t sentences) {
  const TranslationCorpus& corpus = task.corpus();
  const std::vector<std::string> lines = translate(trainer, task, Split::test, sentences);
  std::vector<std::string> references = corpus.references(Split::test);
  references.resize(lines.size());

  const BleuOptions options;
  const BleuScore score = bleu(lines, references, options);
  nlohmann::json samples = nlohmann::json::array();
  for (std::size_t i = 0; i < std::min<std::size_t>(kSamples, lines.size()); ++i) {
    const auto pair = static_cast<std::int64_t>(i);
    std::vector<std::int32_t> source(
        static_cast<std::size_t>(corpus.length(Split::test, Side::source, pair)));
    corpus.read(Split::test, Side::source, pair, source.data());
    source.pop_back();  // the end mark
    samples.push_back({{"source", text_of(corpus, Side::source, source)},
                       {"reference", references[i]},
                       {"translation", lines[i]}});
  }
  return {{"bleu", score.bleu}, {"bleu_signature", bleu_signature(options)}, {"samples", samples}};
}

}  // namespace memfloor

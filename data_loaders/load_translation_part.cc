// Stages the sentences of a part: ragged rows, straight from the corpus.
#include <algorithm>

#include "data_loaders/translation.h"

namespace memfloor {

std::vector<std::int64_t> first_rows(const TranslationCorpus& corpus, Split split, Side side,
                                     std::span<const std::int32_t> sentences) {
  std::vector<std::int64_t> rows{0};
  rows.reserve(sentences.size() + 1);
  for (const std::int32_t index : sentences)
    rows.push_back(rows.back() + corpus.length(split, side, index));
  return rows;
}

void load_part(const TranslationCorpus& corpus, Split split,
               std::span<const std::int32_t> sentences, std::int32_t* source,
               std::int32_t* decoder_input, std::int32_t* decoder_output) {
  for (const std::int32_t index : sentences) {
    corpus.read(split, Side::source, index, source);
    source += corpus.length(split, Side::source, index);

    const std::int64_t length = corpus.length(split, Side::target, index);
    corpus.read(split, Side::target, index, decoder_output);
    decoder_input[0] = kEnd;
    std::copy_n(decoder_output, length - 1, decoder_input + 1);
    decoder_input += length;
    decoder_output += length;
  }
}

}  // namespace memfloor

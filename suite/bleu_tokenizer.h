// How a line becomes the words that BLEU compares.
#pragma once

#include <string>
#include <string_view>

namespace memfloor {

enum class BleuTokenizer {
  none,  // of multi-bleu.perl: text is tokenised already; words stand between ASCII white space
  v13a,  // of mteval-v13a.pl in sacrebleu's form: for plain text of a western language
};

/// The words of a line of UTF-8 text, joined by single spaces. Lower case comes first, as in the
/// originals: `none` knows the letters of ASCII, as Perl does for bytes; `v13a` those of ASCII,
/// Latin and Cyrillic (sacrebleu: all of Unicode).
std::string bleu_words(std::string_view line, BleuTokenizer tokenizer, bool lower_case);

}  // namespace memfloor

// BLEU (Papineni, Roukos, Ward, Zhu, ACL 2002) in the two forms that papers report: that of
// multi-bleu.perl (Moses), which fairseq's figures for IWSLT'14 follow, and that of sacrebleu
// (Post, WMT 2018). Both have the same counts once lines are words; they differ in the tokeniser,
// and in sacrebleu's smoothing where no n-gram of an order is right.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "suite/bleu_tokenizer.h"

namespace memfloor {

/// What stands for the precision of an order of which no n-gram is right. Method numbers are those
/// of Chen and Cherry, "A systematic comparison of smoothing techniques", WMT 2014.
enum class BleuSmoothing {
  none,   // 0, and so is the score
  floor,  // smoothing_value n-grams are right (method 1)
  add_k,  // smoothing_value is added to right and all n-grams of every order from 2 on (method 2)
  exp,    // 1/2 n-gram is right in the first such order, 1/4 in the second, ... (method 3)
};

struct BleuOptions {
  BleuTokenizer tokenizer = BleuTokenizer::none;
  bool lower_case = false;
  BleuSmoothing smoothing = BleuSmoothing::none;
  double smoothing_value = 0;
  bool effective_order = false;  // only the orders of which there are n-grams; for single lines
  int order = 4;                 // longest n-gram, in words
};

/// Summed over lines; [n - 1] is of n-grams of n words.
struct BleuCounts {
  std::vector<std::int64_t> correct, total;  // of the hypotheses' n-grams
  std::int64_t hypothesis_length = 0;        // words
  std::int64_t reference_length = 0;         // words of each line's reference of nearest length
};

struct BleuScore {
  BleuCounts counts;
  double bleu = 0;                 // percent
  std::vector<double> precisions;  // percent; [n - 1] is of n-grams of n words
  double brevity_penalty = 0;      // 1 where the hypotheses are as long as the references
};

/// Compares line with line. `references` holds one or more sets, each as long as `hypotheses`.
BleuCounts count_ngrams(std::span<const std::string> hypotheses,
                        std::span<const std::vector<std::string>> references,
                        const BleuOptions& options);

BleuScore score_bleu(const BleuCounts& counts, const BleuOptions& options);

/// Both at once, against one set of references.
BleuScore bleu(std::span<const std::string> hypotheses, const std::vector<std::string>& references,
               const BleuOptions& options);

/// As multi-bleu.perl prints it: "BLEU = 34.26, 69.9/43.9/29.6/20.4 (BP=0.928, ratio=0.931,
/// hyp_len=122097, ref_len=131156)".
std::string to_text(const BleuScore& score);

/// Everything in it, by name; precisions and the score in percent.
nlohmann::json to_json(const BleuScore& score);

/// How the score was made, in the form of sacrebleu's signatures:
/// "nrefs:1|case:lc|eff:no|tok:13a|smooth:exp|version:memfloor-0.1.0". `version` is this program's.
std::string bleu_signature(const BleuOptions& options, int references = 1);

}  // namespace memfloor

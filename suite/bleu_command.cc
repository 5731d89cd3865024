// memfloor bleu: the score of a file of translations.
#include <iostream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/text_lines.h"
#include "suite/bleu.h"
#include "suite/command_line.h"

namespace memfloor {

int bleu_command(const CommandLine& line) {
  if (line.hypotheses.empty() || line.reference.empty())
    throw InputError("bleu needs --hypotheses FILE and --reference FILE, a sentence a line");
  BleuOptions options;
  options.lower_case = line.lower_case;
  if (line.tokenize == "13a") {  // sacrebleu's defaults go with its tokeniser
    options.tokenizer = BleuTokenizer::v13a;
    options.smoothing = BleuSmoothing::exp;
  } else if (!line.tokenize.empty() && line.tokenize != "none") {
    throw InputError(concat("--tokenize takes none or 13a, not '", line.tokenize, "'"));
  }
  constexpr const char* kAdvice = "give UTF-8 text with a sentence in each line";
  const std::vector<std::string> hypotheses = read_lines(line.hypotheses, kAdvice);
  const std::vector<std::string> references = read_lines(line.reference, kAdvice);
  if (hypotheses.size() != references.size())
    throw InputError(concat("'", line.hypotheses, "' has ", hypotheses.size(), " lines, but '",
                            line.reference, "' has ", references.size(),
                            "; give the translations of the same sentences"));
  const BleuScore score = bleu(hypotheses, references, options);
  const std::string signature = bleu_signature(options);
  if (line.json) {
    nlohmann::json result = to_json(score);
    result["signature"] = signature;
    std::cout << result.dump(2) << std::endl;
  } else {
    std::cout << to_text(score) << "\nsignature: " << signature << std::endl;
  }
  return 0;
}

}  // namespace memfloor

// memfloor compare A B.
#include <iostream>

#include "core/atomic_file.h"
#include "core/error.h"
#include "suite/command_line.h"
#include "suite/compare.h"
#include "suite/result.h"

namespace memfloor {

int compare_command(const CommandLine& line) {
  if (line.paths.size() != 2)
    throw InputError(concat("compare takes two results, or two folders of results, not ",
                            line.paths.size(),
                            "; as in: memfloor compare results/one results/other"));
  if (!(line.spec == RunSpec{}))
    throw InputError("compare takes no flags of a spec; its runs are those that both sides have");
  const bool json_file = line.out.ends_with(".json");
  if (!line.out.empty() && !json_file && !line.out.ends_with(".md"))
    throw InputError(concat("--out of compare ends with .md or .json, not as in '", line.out, "'"));
  check_writable(line.out);
  const Comparison comparison = compare_results(line.paths[0], line.paths[1]);
  const std::string markdown = to_markdown(comparison);
  const std::string json = to_text(to_json(comparison)) + "\n";
  if (!line.out.empty()) {
    AtomicFile file(line.out);
    file.write(json_file ? json : markdown);
    file.commit();
  }
  std::cout << (line.json ? json : markdown) << std::flush;
  return comparison.count(Verdict::regression) > 0 ? 1 : 0;
}

}  // namespace memfloor

#include "suite/command_line.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "suite/cases.h"
#include "suite/suite_plan.h"

namespace memfloor {
namespace {

namespace options = boost::program_options;

struct CommandHelp {
  const char* name;
  const char* help;
};
constexpr CommandHelp kCommands[] = {
    {"list", "models, techniques, recipes, spec keys and registered benchmarks"},
    {"train", "train to the end of the recipe; writes a result file with --out"},
    {"measure", "two real steps and one evaluation part, then the byte table"},
    {"step", "real steps with a clock, and the byte table"},
    {"predict", "the same table without running: the null backend"},
    {"explain", "the tensors alive at the peak, largest first"},
    {"timeline", "predict, and the bytes of every category through one update"},
    {"evaluate", "test accuracy of --weights FILE"},
    {"plan", "combinations of techniques that fit --memory-budget, with work and accuracy risk"},
    {"bleu", "BLEU of --hypotheses FILE against --reference FILE, a sentence a line"},
    {"suite run", "every case of a level, a result file each; what is there already is skipped"},
    {"suite summary", "the table of a folder of results"},
    {"compare",
     "results A and B, files or folders: bytes, times, quality; exit status 1: regressions"},
    {"bench", "Google Benchmark over what is registered; --benchmark_* flags pass through"},
};

options::options_description describe() {
  options::options_description all("Flags");
  auto add = all.add_options();
  for (const SpecKey& key : spec_keys()) {
    const std::string flag = key.flag().substr(2);
    if (key.name == "augment")
      add("no-augment", options::bool_switch(), ("without: " + key.help).c_str());
    else
      add(flag.c_str(), options::value<std::string>(), key.help.c_str());
  }
  add("spec", options::value<std::string>(), "JSON file with spec keys; flags beside it win");
  add("out", options::value<std::string>(), "result file to write");
  add("json", options::bool_switch(), "print the result as JSON on standard output");
  add("init-weights", options::value<std::string>(), "start from this safetensors file");
  add("save-weights", options::value<std::string>(),
      "write the final weights to this safetensors file");
  add("save-sparse", options::value<std::string>(),
      "write the final sparse weights for SciPy: CSR arrays in a safetensors file");
  add("weights", options::value<std::string>(), "weights to evaluate");
  add("log-loss", options::value<std::string>(),
      "write every update's loss to this file, JSON lines");
  add("snapshot-every", options::value<std::string>(),
      "updates between snapshots, kept at OUT.snapshot");
  add("steps", options::value<std::string>(),
      "how many steps are timed (default: 20 of images, 5 of text)");
  add("resume", options::bool_switch(), "continue from OUT.snapshot where it exists");
  add("seeds", options::value<std::string>(),
      "train once for each, as in 1,2,3; reports mean and spread");
  add("hypotheses", options::value<std::string>(), "translations to score");
  add("reference", options::value<std::string>(), "what they should be");
  add("tokenize", options::value<std::string>(),
      "none: tokenised text, as multi-bleu.perl (the default); 13a: plain text, as sacrebleu");
  add("lower-case", options::bool_switch(), "compare in lower case");
  for (const std::string& level : suite_levels())
    add(level.c_str(), options::bool_switch(), "the suite's level; see docs/running-the-suite.md");
  add("filter", options::value<std::string>(), "only what this regular expression matches");
  add("results", options::value<std::string>(),
      "folder of results (default: results/ and the machine's name)");
  add("dry-run", options::bool_switch(), "list what would run and for about how long");
  add("jobs", options::value<std::string>(),
      "what is not timed, so many side by side (default: 1)");
  add("shard", options::value<std::string>(), "one part of the work, as in 2/5");
  add("help", options::bool_switch(), "this text");
  return all;
}

// Flags beside the spec's keys belong to some commands; anywhere else they would be ignored.
struct FlagUse {
  const char* flag;
  std::vector<std::string> commands;
};
const FlagUse kFlagUses[] = {
    {"json",
     {"list", "train", "measure", "step", "predict", "explain", "timeline", "evaluate", "plan",
      "bleu", "suite run", "suite summary", "compare"}},
    {"out", {"train", "measure", "step", "predict", "timeline", "evaluate", "compare"}},
    {"init-weights", {"train", "measure"}},
    {"weights", {"evaluate"}},
    {"save-weights", {"train"}},
    {"save-sparse", {"train"}},
    {"log-loss", {"train"}},
    {"snapshot-every", {"train"}},
    {"resume", {"train"}},
    {"steps", {"step"}},
    {"seeds", {"train"}},
    {"hypotheses", {"bleu"}},
    {"reference", {"bleu"}},
    {"tokenize", {"bleu"}},
    {"lower-case", {"bleu"}},
    {"quick", {"suite run"}},
    {"headline", {"suite run"}},
    {"full", {"suite run"}},
    {"filter", {"suite run"}},
    {"results", {"suite run", "suite summary"}},
    {"dry-run", {"suite run"}},
    {"jobs", {"suite run"}},
    {"shard", {"suite run"}},
};

void refuse_misplaced(const options::variables_map& given, const std::string& command) {
  for (const FlagUse& use : kFlagUses) {
    const auto& commands = use.commands;
    if (!given.count(use.flag) || given[use.flag].defaulted() ||
        std::find(commands.begin(), commands.end(), command) != commands.end())
      continue;
    std::string known;
    for (const std::string& other : commands) known += (known.empty() ? "" : ", ") + other;
    throw InputError(concat("--", use.flag, " does not go with ", command, ", only with: ", known));
  }
}

std::int64_t whole_number(const std::string& text, const std::string& flag, std::int64_t least) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least)
    throw InputError(
        concat(flag, " takes a whole number of at least ", least, ", not '", text, "'"));
  return value;
}

std::vector<std::int64_t> parse_seeds(const std::string& text) {
  std::vector<std::int64_t> seeds;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::int64_t seed = whole_number(text.substr(begin, end - begin), "--seeds", 0);
    if (std::find(seeds.begin(), seeds.end(), seed) != seeds.end())
      throw InputError(concat("--seeds has ", seed, " twice; give each seed once"));
    seeds.push_back(seed);
    begin = end + 1;
  }
  return seeds;
}

// "2/5"
void parse_shard(const std::string& text, SuiteFlags& suite) {
  const std::size_t slash = text.find('/');
  if (slash != std::string::npos) {
    suite.shard = whole_number(text.substr(0, slash), "--shard", 1);
    suite.shards = whole_number(text.substr(slash + 1), "--shard", 1);
  }
  if (slash == std::string::npos || suite.shard > suite.shards || suite.shards > 100000)
    throw InputError(concat("--shard takes which part of how many, as in 2/5, not '", text, "'"));
}

SuiteFlags parse_suite_flags(const options::variables_map& given) {
  SuiteFlags suite;
  std::string levels;
  for (const std::string& level : suite_levels())
    if (given[level].as<bool>()) {
      suite.level = level;
      levels += (levels.empty() ? "--" : " and --") + level;
    }
  if (levels.find(' ') != std::string::npos)
    throw InputError(concat(levels, " are two levels of the suite; give one"));
  const auto text = [&](const char* flag) {
    return given.count(flag) ? given[flag].as<std::string>() : std::string();
  };
  suite.filter = text("filter");
  suite.results = text("results");
  for (const char* flag : {"filter", "results"})
    if (given.count(flag) && text(flag).empty())
      throw InputError(concat("--", flag, " is given without a value; see: memfloor --help"));
  suite.dry_run = given["dry-run"].as<bool>();
  if (given.count("jobs")) suite.jobs = whole_number(text("jobs"), "--jobs", 1);
  if (given.count("shard")) parse_shard(text("shard"), suite);
  return suite;
}

}  // namespace

std::string usage() {
  std::ostringstream text;
  text
      << "memfloor: how little memory does training need?\n\nusage: memfloor <command> [flags]\n\n";
  for (const CommandHelp& command : kCommands)
    text << "  " << command.name << std::string(15 - std::string(command.name).size(), ' ')
         << command.help << "\n";
  text << "\n" << describe();
  return text.str();
}

CommandLine parse_command_line(const std::vector<std::string>& arguments) {
  CommandLine line;
  std::string known;
  for (const CommandHelp& command : kCommands)
    known += (known.empty() ? "" : ", ") + std::string(command.name);
  if (arguments.empty())
    throw InputError(
        concat("a command is missing; memfloor knows: ", known, "; see: memfloor --help"));
  if (arguments[0] == "--help" || arguments[0] == "help") {
    line.help = true;
    return line;
  }
  line.command = arguments[0];
  std::size_t words = 1;  // of the command
  if (line.command == "suite" && arguments.size() > 1) {
    line.command += " " + arguments[1];
    words = 2;
  }
  if (std::none_of(std::begin(kCommands), std::end(kCommands),
                   [&](const CommandHelp& c) { return line.command == c.name; }))
    throw InputError(concat("'", line.command, "' is not a command; memfloor knows: ", known));

  // Google Benchmark's flags are its own affair.
  std::vector<std::string> rest;
  for (std::size_t i = words; i < arguments.size(); ++i)
    (arguments[i].starts_with("--benchmark_") ? line.benchmark_flags : rest)
        .push_back(arguments[i]);
  if (!line.benchmark_flags.empty() && line.command != "bench")
    throw InputError(concat("'", line.benchmark_flags[0], "' goes with: memfloor bench"));

  const options::options_description description = describe();
  options::variables_map given;
  try {
    using Style = options::command_line_style::style_t;
    const int style = Style::allow_long | Style::long_allow_adjacent | Style::long_allow_next;
    const options::parsed_options parsed =
        options::command_line_parser(rest).options(description).style(style).run();
    for (const options::option& option : parsed.options)
      if (option.position_key >= 0 && line.command == "compare")
        line.paths.push_back(option.value.front());
      else if (option.position_key >= 0)
        throw InputError(concat("'", option.value.front(),
                                "' is not a flag (they begin with --); see: memfloor --help"));
    options::store(parsed, given);
  } catch (const options::unknown_option& error) {
    throw InputError(concat("unknown flag '", error.get_option_name(), "'; see: memfloor --help"));
  } catch (const options::error& error) {
    throw InputError(concat(error.what(), "; see: memfloor --help"));
  }

  refuse_misplaced(given, line.command);
  // An empty value is an unset shell variable more often than a wish.
  const auto text = [&](const char* flag) {
    if (!given.count(flag)) return std::string();
    if (given[flag].as<std::string>().empty())
      throw InputError(concat("--", flag, " is given without a value; see: memfloor --help"));
    return given[flag].as<std::string>();
  };
  if (given.count("spec")) line.spec = read_spec_file(text("spec"));
  if (given.count("model")) line.spec.model = text("model");  // whose presets count
  if (given.count("preset")) set_from_preset(line.spec, text("preset"));
  for (const SpecKey& key : spec_keys()) {
    const std::string flag = key.flag().substr(2);
    if (given.count(flag)) set_from_text(line.spec, key, given[flag].as<std::string>());
    if (given.count(flag)) line.given.insert(key.name);
  }
  const nlohmann::json values = to_json(line.spec), defaults = to_json(RunSpec{});
  for (const auto& [key, value] : values.items())
    if (value != defaults[key]) line.given.insert(key);
  line.models = suite_models();
  if (given.count("model") || given.count("spec")) line.models = {line.spec.model};
  // Zero means "not given" inside; typed by a person it is a mistake.
  for (const char* flag : {"batch-size", "microbatch", "max-tokens", "microbatch-tokens",
                           "sentence-length", "average-epochs", "epochs", "threads"})
    if (given.count(flag)) whole_number(text(flag), concat("--", flag), 1);
  if (given.count("learning-rate") && line.spec.learning_rate == 0)
    throw InputError("--learning-rate takes a positive number, not 0");
  if (given["no-augment"].as<bool>()) {
    line.spec.augment = false;
    line.given.insert("augment");
  }
  line.suite = parse_suite_flags(given);
  line.out = text("out");
  line.init_weights = text("init-weights");
  line.save_weights = text("save-weights");
  line.save_sparse = text("save-sparse");
  line.weights = text("weights");
  line.log_loss = text("log-loss");
  const std::pair<std::string, std::string> outputs[] = {{"out", line.out},
                                                         {"save-weights", line.save_weights},
                                                         {"save-sparse", line.save_sparse},
                                                         {"log-loss", line.log_loss}};
  for (const auto& [flag, path] : outputs)
    for (const auto& [other, other_path] : outputs)
      if (flag != other && !path.empty() && path == other_path)
        throw InputError(concat("--", flag, " and --", other, " name the same file '", path,
                                "'; give each its own"));
  line.json = given["json"].as<bool>();
  line.hypotheses = text("hypotheses");
  line.reference = text("reference");
  line.tokenize = text("tokenize");
  line.lower_case = given["lower-case"].as<bool>();
  line.resume = given["resume"].as<bool>();
  line.help = given["help"].as<bool>();
  if (given.count("snapshot-every"))
    line.snapshot_every = whole_number(text("snapshot-every"), "--snapshot-every", 1);
  if (given.count("steps")) line.steps = whole_number(text("steps"), "--steps", 1);
  if (given.count("seeds")) line.seeds = parse_seeds(text("seeds"));
  if ((line.resume || line.snapshot_every > 0) && line.out.empty())
    throw InputError(
        "--resume and --snapshot-every need --out FILE: the snapshot is kept at FILE.snapshot");
  return line;
}

}  // namespace memfloor

// A comparison in words and as JSON.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/error.h"
#include "suite/compare.h"
#include "suite/progress_line.h"

namespace memfloor {
namespace {

using nlohmann::json;

// ---- words

std::string percent(double share) { return concat(fixed(100 * share, 1), " %"); }

std::string p_text(double p) {
  return p < 0.0001 ? "p < 0.0001" : concat("p = ", fixed(p, p < 0.001 ? 4 : 3));
}

std::string milliseconds(double seconds) {
  return concat(fixed(1e3 * seconds, seconds < 0.1 ? 2 : 1), " ms");
}

// "52.1 ms [51.7 ms to 52.5 ms]"
std::string spread_text(const SampleSummary& s) {
  return concat(milliseconds(s.median), " [", milliseconds(s.lower_quartile), " to ",
                milliseconds(s.upper_quartile), "]");
}

std::string threads_text(const Row& row) {
  return row.threads_a == row.threads_b
             ? ""
             : concat("; threads: ", row.threads_a, " in A, ", row.threads_b, " in B");
}

std::string unit_of(const ByteDifference& d) {
  return d.place.starts_with("flops.") ? "operations" : "bytes";
}

std::string bytes_sentence(const ByteComparison& bytes) {
  const auto change = [](const ByteDifference& d) {
    return concat(std::abs(d.b - d.a), d.b > d.a ? " more" : " fewer");
  };
  const ByteDifference& first = bytes.differences.front();
  std::string text = concat(first.place, " is ", first.b, " ", unit_of(first), ", ", change(first),
                            " than ", first.a, " in A (", bytes.reason, ")");
  for (std::size_t i = 1; i < bytes.differences.size(); ++i)
    text += concat(i == 1 ? "; also " : ", ", bytes.differences[i].place, " ",
                   change(bytes.differences[i]));
  return text;
}

std::string time_sentence(const TimeComparison& time) {
  const char* what = time.of_steps ? "steps" : "runs";
  const std::string size = time.slower > 0 ? concat(percent(time.slower), " slower")
                                           : concat(percent(-time.slower), " less time");
  return concat(size, ": a step takes ", spread_text(time.b), " instead of ", spread_text(time.a),
                " (median and middle half of ", time.b.count, " and ", time.a.count, " ", what,
                "; ", p_text(time.test.p_value), ")");
}

struct QualityWords {
  std::string name;
  double factor;
  const char* unit;
};
QualityWords words_of(const std::string& key) {
  if (key == "test_accuracy") return {"test accuracy", 100, " %"};
  if (key == "bleu") return {"BLEU", 1, ""};
  return {"perplexity", 1, ""};
}

std::string quality_sentence(const QualityComparison& quality) {
  const QualityWords words = words_of(quality.key);
  const auto value = [&](double v) { return concat(fixed(words.factor * v, 2), words.unit); };
  const auto side = [&](const SampleSummary& s) {
    return s.count == 1 ? concat(value(s.median), " (one seed)")
                        : concat(value(s.median), " (median of ", s.count, " seeds, ",
                                 value(s.minimum), " to ", value(s.maximum), ")");
  };
  return concat(words.name, " is ", side(quality.b), " instead of ", side(quality.a),
                std::min(quality.a.count, quality.b.count) < 2
                    ? "; one seed says nothing of significance"
                    : "");
}

// One line for each of a row's figures that has this verdict.
std::vector<std::string> lines_with(Verdict verdict, const Row& row) {
  std::vector<std::string> lines;
  const auto add = [&](const std::string& sentence) {
    lines.push_back(concat("`", row.name, "`: ", sentence, threads_text(row)));
  };
  if (row.bytes.verdict == verdict) add(bytes_sentence(row.bytes));
  if (row.time && row.time->verdict == verdict) add(time_sentence(*row.time));
  for (const QualityComparison& quality : row.quality)
    if (quality.verdict == verdict) add(quality_sentence(quality));
  return lines;
}

std::string counted(std::size_t count, const char* one, const char* many) {
  return concat(count, " ", count == 1 ? one : many);
}

std::string verdict_sentence(const Comparison& comparison) {
  const int regressions = comparison.count(Verdict::regression);
  const auto undecided = static_cast<std::size_t>(comparison.count(Verdict::undecided));
  return concat(
      regressions == 0
          ? "no regression"
          : counted(static_cast<std::size_t>(regressions), "regression", "regressions"),
      " in ", counted(comparison.rows.size(), "run", "runs"), " that A and B have in common",
      undecided == 0 ? ""
                     : concat("; ", counted(undecided, "difference is", "differences are"),
                              " not decided, for want of samples"));
}

// ---- the machines

// The different values of a key of the environment among a side's results.
std::string values_of(const Side& side, const std::string& key) {
  std::set<std::string> values;
  for (const StoredResult& result : side.results) {
    const json& value = value_at(result.content, "environment." + key);
    if (value.is_object()) {
      std::string joined;
      for (const auto& [name, version] : value.items())
        joined += concat(joined.empty() ? "" : ", ", name, " ",
                         version.is_string() ? version.get<std::string>() : version.dump());
      values.insert(joined);
    } else {
      values.insert(value.is_null()     ? "unknown"
                    : value.is_string() ? value.get<std::string>()
                                        : value.dump());
    }
  }
  std::string text;
  for (const std::string& value : values) text += concat(text.empty() ? "" : " / ", value);
  return text;
}

const std::pair<const char*, const char*> kMachineKeys[] = {
    {"cpu_model", "processor"},
    {"instruction_set", "instruction set"},
    {"cpu_count", "cores"},
    {"machine_memory_bytes", "memory (bytes)"},
    {"gpu_model", "GPU"},
    {"operating_system", "operating system"},
    {"compiler", "compiler"},
    {"compiler_flags", "compiler flags"},
    {"build_type", "build"},
    {"libraries", "libraries"},
    {"memfloor_version", "memfloor"},
    {"git_commit", "commit"},
    {"source_sha256", "source (SHA-256)"}};

// A text in a cell of a table.
std::string cell(const std::string& text) {
  std::string escaped;
  for (const char c : text) escaped += c == '|' ? "\\|" : std::string(1, c);
  return escaped;
}

std::string machines_table(const Comparison& comparison) {
  std::string table = concat("| | A | B |\n|---|---|---|\n| results | ",
                             comparison.a.results.size(), " in `", comparison.a.path, "` | ",
                             comparison.b.results.size(), " in `", comparison.b.path, "` |\n");
  std::string same;
  for (const auto& [key, name] : kMachineKeys) {
    const std::string a = values_of(comparison.a, key), b = values_of(comparison.b, key);
    if (a != b)
      table += concat("| ", name, " | ", cell(a), " | ", cell(b), " |\n");
    else if (a != "unknown")
      same += concat(same.empty() ? "" : ", ", name);
  }
  return table + (same.empty() ? "" : concat("\nThe same on both sides: ", same, ".\n"));
}

// ---- sections

std::string section(const std::string& title, const std::vector<std::string>& lines) {
  if (lines.empty()) return {};
  std::string text = concat("\n## ", title, "\n\n");
  for (const std::string& line : lines) text += concat("- ", line, "\n");
  return text;
}

std::string explained_section(const Comparison& comparison) {
  std::map<std::string, std::string> tables;  // by reason
  for (const Row& row : comparison.rows) {
    if (row.bytes.verdict != Verdict::explained) continue;
    std::int64_t workspace_a = 0, workspace_b = 0;
    for (const ByteDifference& d : row.bytes.differences)
      if (d.place == "category_peak.workspace") workspace_a = d.a, workspace_b = d.b;
    const bool moved = workspace_a != workspace_b;
    tables[row.bytes.reason + threads_text(row)] +=
        concat("| `", row.name, "` | ", moved ? concat(workspace_a) : "equal", " | ",
               moved ? concat(workspace_b) : "equal", " | ", row.peak_a, " | ", row.peak_b, " |\n");
  }
  std::string text;
  for (const auto& [reason, table] : tables)
    text +=
        concat("\n", static_cast<char>(std::toupper(reason[0])), reason.substr(1),
               ". Every other category is equal.\n\n| run | workspace of A, bytes | of B | peak of "
               "A, bytes | of B |\n|---|---|---|---|---|\n",
               table);
  return text.empty() ? "" : "\n## Bytes that differ as machines may\n" + text;
}

std::string why_unchanged(const TimeComparison& time) {
  if (smallest_p_value(time.a.count, time.b.count) >= kSignificance)
    return "too few samples for a test";
  return concat(
      time.test.p_value >= kSignificance ? "no significant change" : "significant, but below 5 %",
      " (", p_text(time.test.p_value), ")");
}

std::string unchanged_section(const Comparison& comparison) {
  std::size_t bytes = 0, qualities = 0;
  std::string times;
  for (const Row& row : comparison.rows) {
    bytes += row.bytes.verdict == Verdict::unchanged;
    for (const QualityComparison& quality : row.quality)
      qualities += quality.verdict == Verdict::unchanged;
    if (row.time && row.time->verdict == Verdict::unchanged)
      times +=
          concat("| `", row.name, "` | ", spread_text(row.time->a), " | ", spread_text(row.time->b),
                 " | ", row.time->slower >= 0 ? "+" : "", percent(row.time->slower), " | ",
                 why_unchanged(*row.time), threads_text(row), " |\n");
  }
  if (bytes + qualities == 0 && times.empty()) return {};
  std::string text = concat("\n## Unchanged\n\nBytes are equal in ", counted(bytes, "run", "runs"),
                            " of ", comparison.rows.size(), ".");
  if (qualities > 0)
    text += concat(" ", counted(qualities, "figure", "figures"),
                   " of quality: equal, or within the spread of the seeds.");
  text += "\n";
  if (!times.empty())
    text += concat("\n| run | a step of A | of B | change | |\n|---|---|---|---|---|\n", times);
  return text;
}

std::vector<std::string> quoted(const std::vector<std::string>& names) {
  std::vector<std::string> lines;
  for (const std::string& name : names) lines.push_back(concat("`", name, "`"));
  return lines;
}

constexpr const char* kReading =
    "\nTimes are medians, with the middle half of the samples in brackets. A regression is slower "
    "by "
    "more than 5 % with p < 0.05 in the two-sided\nMann-Whitney U test, or bytes that are larger "
    "or "
    "should be equal, or quality that is worse by more than its seeds spread. The steps of one run "
    "share\nthe machine's mood: two runs a side say more than one.\n";

// ---- JSON

json to_json(const SampleSummary& s, const char* suffix) {
  const auto key = [&](const char* name) { return concat(name, suffix); };
  return {{"count", s.count},
          {key("median"), s.median},
          {key("lower_quartile"), s.lower_quartile},
          {key("upper_quartile"), s.upper_quartile},
          {key("minimum"), s.minimum},
          {key("maximum"), s.maximum}};
}

json to_json(const Row& row) {
  json differences = json::array();
  for (const ByteDifference& d : row.bytes.differences)
    differences.push_back({{"place", d.place}, {"unit", unit_of(d)}, {"a", d.a}, {"b", d.b}});
  json time;
  if (row.time) {
    time = {{"a", to_json(row.time->a, "_seconds")},
            {"b", to_json(row.time->b, "_seconds")},
            {"samples", row.time->of_steps ? "steps" : "runs"},
            {"slower_by", row.time->slower},
            {"u", row.time->test.u},
            {"p_value", row.time->test.p_value},
            {"exact", row.time->test.exact},
            {"verdict", name_of(row.time->verdict)}};
  }
  json quality = json::array();
  for (const QualityComparison& q : row.quality)
    quality.push_back({{"key", q.key},
                       {"a", to_json(q.a, "")},
                       {"b", to_json(q.b, "")},
                       {"verdict", name_of(q.verdict)}});
  const auto or_null = [](std::optional<bool> value) { return value ? json(*value) : json(); };
  return {{"name", row.name},
          {"command", row.command},
          {"spec", memfloor::to_json(row.spec)},
          {"threads", {{"a", row.threads_a}, {"b", row.threads_b}}},
          {"files", {{"a", row.files_a}, {"b", row.files_b}}},
          {"peak_total_bytes", {{"a", row.peak_a}, {"b", row.peak_b}}},
          {"same_fingerprint", row.same_fingerprint},
          {"same_code", or_null(row.same_code)},
          {"bytes",
           {{"verdict", name_of(row.bytes.verdict)},
            {"differences", differences},
            {"reason", row.bytes.reason.empty() ? json() : json(row.bytes.reason)}}},
          {"time", time},
          {"quality", quality},
          {"verdict", name_of(row.verdict())}};
}

json to_json(const Side& side) {
  json machine = json::object();
  for (const auto& [key, name] : kMachineKeys) machine[key] = values_of(side, key);
  return {{"path", side.path}, {"results", side.results.size()}, {"machine", machine}};
}

}  // namespace

std::string to_markdown(const Comparison& comparison) {
  std::vector<std::string> regressions, improvements, undecided;
  for (const Row& row : comparison.rows)
    for (const auto& [verdict, lines] : {std::pair{Verdict::regression, &regressions},
                                         std::pair{Verdict::improvement, &improvements},
                                         std::pair{Verdict::undecided, &undecided}})
      for (std::string& line : lines_with(verdict, row)) lines->push_back(std::move(line));
  return concat("# memfloor: B beside A\n\n**", verdict_sentence(comparison), "**\n\n",
                machines_table(comparison), section("Regressions", regressions),
                section("Improvements", improvements),
                section("Too few samples to decide", undecided), explained_section(comparison),
                unchanged_section(comparison), section("Only A has", quoted(comparison.only_a)),
                section("Only B has", quoted(comparison.only_b)),
                section("Notes", comparison.notes), kReading);
}

json to_json(const Comparison& comparison) {
  json rows = json::array(), counts = json::object(), findings = json::array();
  for (const Row& row : comparison.rows) rows.push_back(to_json(row));
  for (const Verdict verdict : {Verdict::regression, Verdict::improvement, Verdict::undecided,
                                Verdict::explained, Verdict::unchanged}) {
    counts[name_of(verdict)] = comparison.count(verdict);
    if (verdict == Verdict::unchanged) continue;
    for (const Row& row : comparison.rows)
      for (const std::string& line : lines_with(verdict, row))
        findings.push_back({{"verdict", name_of(verdict)}, {"row", row.name}, {"text", line}});
  }
  return {{"schema_version", 1},
          {"command", "compare"},
          {"a", to_json(comparison.a)},
          {"b", to_json(comparison.b)},
          {"counts", counts},
          {"findings", findings},
          {"rows", rows},
          {"only_in_a", comparison.only_a},
          {"only_in_b", comparison.only_b},
          {"notes", comparison.notes}};
}

}  // namespace memfloor

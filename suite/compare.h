// Two sets of results side by side: A, the reference (before a change, a known machine), and B.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "suite/rank_test.h"
#include "suite/samples.h"
#include "suite/stored_results.h"

namespace memfloor {

enum class Verdict {
  regression,   // larger or unequal bytes, significantly slower, worse beyond the spread of seeds
  improvement,  // the reverse
  undecided,    // a difference that the samples are too few to judge
  explained,    // bytes differ where the machines may: workspace, and what includes it
  unchanged,
};
/// "regression", ...
const char* name_of(Verdict verdict);

/// A figure in bytes (of flops: operations) that differs.
struct ByteDifference {
  std::string place;  // in the result file, as in "category_peak.weight"
  std::int64_t a, b;
};

struct ByteComparison {
  Verdict verdict = Verdict::unchanged;
  std::vector<ByteDifference> differences;
  std::string reason;  // why they may differ, or must not
};

struct TimeComparison {
  Verdict verdict = Verdict::unchanged;
  SampleSummary a, b;  // seconds
  bool of_steps;       // the samples are steps; else medians of whole runs
  RankTest test;
  double slower;  // b's median over a's, less 1
};

struct QualityComparison {
  Verdict verdict = Verdict::unchanged;
  std::string key;  // "test_accuracy", "bleu", "perplexity"
  SampleSummary a, b;
};

/// One run that both sides have.
struct Row {
  std::string name;  // command and case, as in "step/model=wrn28_2/data=synthetic"
  std::string command;
  RunSpec spec;  // of a's first result
  std::int64_t threads_a, threads_b;
  std::vector<std::string> files_a, files_b;
  std::int64_t peak_a, peak_b;    // peak_total_bytes
  bool same_fingerprint;          // of the machines
  std::optional<bool> same_code;  // nothing where it is not known
  ByteComparison bytes;
  std::optional<TimeComparison> time;
  std::vector<QualityComparison> quality;

  /// The weightiest of bytes, time and quality.
  Verdict verdict() const;
};

struct Side {
  std::string path;
  std::vector<StoredResult> results;
};

struct Comparison {
  Side a, b;
  std::vector<Row> rows;                    // by name
  std::vector<std::string> only_a, only_b;  // names of runs without a partner
  std::vector<std::string> notes;           // sentences

  int count(Verdict verdict) const;  // of bytes, times and qualities, one each a row
};

// A regression of time is slower by more than this share, and significant.
inline constexpr double kTolerance = 0.05;
inline constexpr double kSignificance = 0.05;

/// Pairs what is the same run: same command and spec, whatever `data_dir`, `preset` and `threads`
/// are (equal numbers of threads are paired first); of trainings and evaluations, whatever the
/// seed. Several results of one run on one side are repetitions, and pooled.
/// Throws InputError as read_results() does, where nothing is in common, and where one side has
/// results of one run that do not agree (of two machines; with different bytes).
Comparison compare_results(const std::string& a, const std::string& b);

/// For people: Markdown, regressions first.
std::string to_markdown(const Comparison& comparison);
/// For programs, scripts/compare_figure among them.
nlohmann::json to_json(const Comparison& comparison);

}  // namespace memfloor

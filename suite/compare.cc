#include "suite/compare.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "core/error.h"
#include "core/memory_record.h"

namespace memfloor {
namespace {

using nlohmann::json;

// ---- which results are of the same run

// A training's seeds are repetitions; a step's seed is part of what is run.
bool pools_seeds(const std::string& command) { return command == "train" || command == "evaluate"; }

json identity(const StoredResult& result) {
  json key = to_json(result.spec);
  for (const char* name : {"data_dir", "preset", "threads"}) key.erase(name);
  if (pools_seeds(result.command)) key.erase("seed");
  key["command"] = result.command;
  return key;
}

// The case's name, and every other key of its identity that is not at its default.
std::string name_of_run(const StoredResult& result) {
  RunSpec plain;
  plain.model = result.spec.model, plain.recipe = result.spec.recipe;
  const json defaults = to_json(validated(plain)), mine = identity(result);
  const std::string shape = case_name(result.spec);
  std::string name = result.command + "/" + shape;
  for (const auto& [key, value] : mine.items()) {
    const bool elsewhere = key == "command" || key == "model" || key == "data" ||
                           key.starts_with("sparse_") || key.starts_with("microbatch") ||
                           shape.find("/" + key + "=") != std::string::npos;
    // 0 and null both say "not given".
    const auto given = [](const json& v) { return v.is_null() || v == 0 ? json() : v; };
    if (key == "recipe" ? pools_seeds(result.command)
                        : !elsewhere && given(value) != given(defaults[key]))
      name += concat("/", key, "=", value.is_string() ? value.get<std::string>() : value.dump());
  }
  return name;
}

using Group = std::vector<const StoredResult*>;                       // of one run on one side
using Groups = std::map<std::string, std::map<std::int64_t, Group>>;  // by identity, threads

std::string fingerprint_of(const StoredResult& result) {
  const json& text = value_at(result.content, "environment.fingerprint");
  return text.is_string() ? text.get<std::string>() : "";
}

// ---- bytes

// What no machine may change...
std::vector<std::string> fixed_places() {
  std::vector<std::string> places;
  for (int c = 0; c < kCategoryCount; ++c)
    if (static_cast<Category>(c) != Category::workspace)
      places.push_back(concat("memory.category_peak.", name_of(static_cast<Category>(c))));
  for (const char* place :
       {"memory.paper.model_bytes", "memory.paper.optimizer_bytes", "memory.paper.activation_bytes",
        "memory.paper.total_bytes", "flops.forward", "flops.backward", "flops.recompute"})
    places.emplace_back(place);
  return places;
}

// ... and workspace, with all that includes it: the instant of the peak, too, moves with it.
std::vector<std::string> machine_places() {
  std::vector<std::string> places{"memory.peak_total_bytes", "memory.category_peak.workspace",
                                  "memory.allocated_peak_bytes", "memory.reserved_bytes",
                                  "memory.evaluation_peak_bytes"};
  for (int c = 0; c < kCategoryCount; ++c)
    places.push_back(concat("memory.at_peak.", name_of(static_cast<Category>(c))));
  return places;
}

std::vector<ByteDifference> differences(const StoredResult& a, const StoredResult& b,
                                        const std::vector<std::string>& places) {
  std::vector<ByteDifference> found;
  for (const std::string& place : places) {
    const json &x = value_at(a.content, place), &y = value_at(b.content, place);
    if (!x.is_number_integer() || !y.is_number_integer() || x == y) continue;
    found.push_back({place.starts_with("memory.") ? place.substr(7) : place, x.get<std::int64_t>(),
                     y.get<std::int64_t>()});
  }
  return found;
}

// Whether two results come from the same source, as far as they tell.
std::optional<bool> same_code(const StoredResult& a, const StoredResult& b) {
  const json &hash_a = value_at(a.content, "environment.source_sha256"),
             &hash_b = value_at(b.content, "environment.source_sha256");
  if (hash_a.is_string() && hash_b.is_string()) return hash_a == hash_b;
  const json &commit_a = value_at(a.content, "environment.git_commit"),
             &commit_b = value_at(b.content, "environment.git_commit");
  if (commit_a == commit_b && commit_a.is_string() && commit_a.get<std::string>().size() == 40)
    return true;
  return std::nullopt;
}

// "instruction_set: avx2 and avx512_core_amx", of fingerprints like "device=cpu threads=2".
std::string fingerprint_difference(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return "the machine's fingerprint is not known";
  const auto parse = [](const std::string& text) {
    std::map<std::string, std::string> pairs;
    std::istringstream words(text);
    for (std::string word; words >> word;)
      pairs[word.substr(0, word.find('='))] =
          word.find('=') == std::string::npos ? "yes" : word.substr(word.find('=') + 1);
    return pairs;
  };
  std::map<std::string, std::string> mine = parse(a), other = parse(b);
  for (const auto& [key, value] : other) mine.try_emplace(key, "none");
  std::string text;
  for (const auto& [key, value] : mine) {
    const auto found = other.find(key);
    const std::string theirs = found == other.end() ? "none" : found->second;
    if (value != theirs)
      text += concat(text.empty() ? "" : "; ", key, ": ", value, " and ", theirs);
  }
  return text;
}

void add(ByteComparison& all, ByteComparison more) {
  if (more.verdict >= all.verdict) return;  // the order of Verdict is that of weight
  all = std::move(more);
}

// Two results of the same seed.
ByteComparison compare_bytes(const StoredResult& a, const StoredResult& b) {
  const bool same_machine = !fingerprint_of(a).empty() && fingerprint_of(a) == fingerprint_of(b);
  const bool other_code = same_code(a, b) == false;
  ByteComparison compared;
  const auto judge = [&](std::vector<ByteDifference> found, const std::string& must) {
    if (found.empty()) return;
    // Code that changed may need less. The split at the peak is then another one; its sum counts.
    if (other_code)
      std::erase_if(found, [](const ByteDifference& d) { return d.place.starts_with("at_peak."); });
    const bool larger =
        std::any_of(found.begin(), found.end(), [](const auto& d) { return d.b > d.a; });
    if (found.empty()) return;
    add(compared, {!other_code || larger ? Verdict::regression : Verdict::improvement, found,
                   other_code ? "the code differs" : must});
  };
  std::vector<ByteDifference> fixed = differences(a, b, fixed_places());
  std::vector<ByteDifference> moving = differences(a, b, machine_places());
  if (same_machine) {
    fixed.insert(fixed.end(), moving.begin(), moving.end());
    judge(fixed, "must be equal: the fingerprint of the machine is the same");
    return compared;
  }
  judge(fixed, "must be equal on every machine");
  if (!moving.empty())
    add(compared, {Verdict::explained, moving,
                   concat("workspace, and what includes it, depends on the machine (",
                          fingerprint_difference(fingerprint_of(a), fingerprint_of(b)), ")")});
  return compared;
}

ByteComparison compare_bytes(const Group& a, const Group& b) {
  ByteComparison compared;
  for (const StoredResult* x : a) {
    // Repetitions have equal bytes, so the first of a seed speaks for them.
    const auto y = std::find_if(b.begin(), b.end(), [&](const StoredResult* other) {
      return other->spec.seed == x->spec.seed;
    });
    if (y != b.end()) add(compared, compare_bytes(*x, **y));
  }
  return compared;
}

// ---- times

std::vector<double> seconds_of(const Group& group, bool steps) {
  std::vector<double> seconds;
  for (const StoredResult* result : group) {
    const json& times = value_at(result->content, "time.step_seconds");
    const json& median = value_at(result->content, "time.step_seconds_median");
    if (steps)
      for (const json& time : times) seconds.push_back(time.get<double>());
    else if (median.is_number())
      seconds.push_back(median.get<double>());
  }
  return seconds;
}

std::optional<TimeComparison> compare_times(const Group& a, const Group& b) {
  for (const bool steps : {true, false}) {
    const std::vector<double> times_a = seconds_of(a, steps), times_b = seconds_of(b, steps);
    if (times_a.empty() || times_b.empty()) continue;
    TimeComparison time;
    time.of_steps = steps;
    time.a = summarize(times_a), time.b = summarize(times_b);
    time.test = mann_whitney(times_a, times_b);
    time.slower = time.b.median / time.a.median - 1;
    const bool slower = time.b.median > (1 + kTolerance) * time.a.median;
    const bool faster = time.a.median > (1 + kTolerance) * time.b.median;
    if (!slower && !faster)
      time.verdict = Verdict::unchanged;
    else if (smallest_p_value(times_a.size(), times_b.size()) >= kSignificance)
      time.verdict = Verdict::undecided;
    else if (time.test.p_value < kSignificance)
      time.verdict = slower ? Verdict::regression : Verdict::improvement;
    return time;
  }
  return std::nullopt;
}

// ---- quality

std::vector<double> qualities_of(const Group& group, const std::string& key) {
  std::map<std::int64_t, double> by_seed;  // a seed that ran twice is one
  for (const StoredResult* result : group) {
    const json& value = value_at(result->content, "quality." + key);
    if (value.is_number()) by_seed.emplace(result->spec.seed, value.get<double>());
  }
  std::vector<double> values;
  for (const auto& [seed, value] : by_seed) values.push_back(value);
  return values;
}

std::vector<QualityComparison> compare_qualities(const Group& a, const Group& b) {
  std::vector<QualityComparison> compared;
  for (const char* key : {"test_accuracy", "bleu", "perplexity"}) {
    const std::vector<double> values_a = qualities_of(a, key), values_b = qualities_of(b, key);
    if (values_a.empty() || values_b.empty()) continue;
    QualityComparison quality;
    quality.key = key;
    quality.a = summarize(values_a), quality.b = summarize(values_b);
    const double better =
        (quality.b.median - quality.a.median) * (quality.key == "perplexity" ? -1 : 1);
    const double spread =
        std::max(quality.a.maximum - quality.a.minimum, quality.b.maximum - quality.b.minimum);
    if (better == 0)
      quality.verdict = Verdict::unchanged;
    else if (std::min(values_a.size(), values_b.size()) < 2)
      quality.verdict = Verdict::undecided;
    else if (std::abs(better) > spread)
      quality.verdict = better > 0 ? Verdict::improvement : Verdict::regression;
    compared.push_back(std::move(quality));
  }
  return compared;
}

// ---- sides and pairs

Groups grouped(const Side& side) {
  Groups groups;
  for (const StoredResult& result : side.results) {
    Group& group = groups[identity(result).dump()][result.spec.threads];
    for (const StoredResult* other : group) {
      if (fingerprint_of(*other) != fingerprint_of(result))
        throw InputError(
            concat("'", other->path, "' and '", result.path, "' are the same run on two machines (",
                   fingerprint_difference(fingerprint_of(*other), fingerprint_of(result)),
                   "); name the folder of one machine"));
      if (other->spec.seed != result.spec.seed || same_code(*other, result) == false) continue;
      std::vector<ByteDifference> found = differences(*other, result, fixed_places());
      const std::vector<ByteDifference> more = differences(*other, result, machine_places());
      found.insert(found.end(), more.begin(), more.end());
      if (!found.empty())
        throw InputError(concat("'", other->path, "' and '", result.path,
                                "' are the same run, but ", found[0].place, " is ", found[0].a,
                                " in one and ", found[0].b,
                                " in the other; bytes repeat exactly, so remove the wrong one"));
    }
    group.push_back(&result);
  }
  return groups;
}

std::vector<std::string> paths_of(const Group& group) {
  std::vector<std::string> paths;
  for (const StoredResult* result : group) paths.push_back(result->path);
  return paths;
}

// The name of a data file that is not the same; empty where all are.
std::string other_data(const StoredResult& a, const StoredResult& b) {
  const json &mine = value_at(a.content, "environment.data_sha256"),
             &other = value_at(b.content, "environment.data_sha256");
  if (mine.is_object())
    for (const auto& [file, hash] : mine.items())
      if (other.is_object() && other.contains(file) && other[file] != hash) return file;
  return {};
}

class Pairing {
 public:
  explicit Pairing(Comparison& comparison)
      : comparison_(comparison), a_(grouped(comparison.a)), b_(grouped(comparison.b)) {}

  void run() {
    for (auto& [identity, mine] : a_) {
      auto& other = b_[identity];
      several_ = std::max(mine.size(), other.size()) > 1;
      for (auto it = mine.begin(); it != mine.end();)
        if (const auto same = other.find(it->first); same != other.end()) {
          pair(it->second, same->second);
          other.erase(same);
          it = mine.erase(it);
        } else {
          ++it;
        }
      if (mine.size() == 1 && other.size() == 1) {
        pair(mine.begin()->second, other.begin()->second);
        mine.clear(), other.clear();
      }
      list(mine, comparison_.only_a);
      list(other, comparison_.only_b);
      other.clear();
    }
    for (const auto& [identity, other] : b_) {
      several_ = other.size() > 1;
      list(other, comparison_.only_b);
    }
    std::sort(comparison_.only_a.begin(), comparison_.only_a.end());
    std::sort(comparison_.only_b.begin(), comparison_.only_b.end());
    std::sort(comparison_.rows.begin(), comparison_.rows.end(),
              [](const Row& x, const Row& y) { return x.name < y.name; });
  }

 private:
  std::string name(const StoredResult& result) const {
    return name_of_run(result) + (several_ ? concat("/threads=", result.spec.threads) : "");
  }

  void list(const std::map<std::int64_t, Group>& groups, std::vector<std::string>& names) const {
    for (const auto& [threads, group] : groups) names.push_back(name(*group.front()));
  }

  void pair(const Group& a, const Group& b) {
    const StoredResult &first_a = *a.front(), &first_b = *b.front();
    if (const std::string file = other_data(first_a, first_b); !file.empty()) {
      comparison_.notes.push_back(concat("`", name(first_a), "` is not compared: data file ", file,
                                         " is not the same in A and B"));
      return;
    }
    Row row;
    row.name = name(first_a), row.command = first_a.command, row.spec = first_a.spec;
    row.threads_a = first_a.spec.threads, row.threads_b = first_b.spec.threads;
    row.files_a = paths_of(a), row.files_b = paths_of(b);
    row.peak_a = value_at(first_a.content, "memory.peak_total_bytes");
    row.peak_b = value_at(first_b.content, "memory.peak_total_bytes");
    row.same_fingerprint =
        !fingerprint_of(first_a).empty() && fingerprint_of(first_a) == fingerprint_of(first_b);
    row.same_code = same_code(first_a, first_b);
    row.bytes = compare_bytes(a, b);
    row.time = compare_times(a, b);
    row.quality = compare_qualities(a, b);
    comparison_.rows.push_back(std::move(row));
  }

  Comparison& comparison_;
  Groups a_, b_;
  bool several_ = false;  // numbers of threads of the run at hand
};

}  // namespace

const char* name_of(Verdict verdict) {
  constexpr const char* kNames[] = {"regression", "improvement", "undecided", "explained",
                                    "unchanged"};
  return kNames[static_cast<int>(verdict)];
}

Verdict Row::verdict() const {
  Verdict worst = bytes.verdict;
  if (time) worst = std::min(worst, time->verdict);
  for (const QualityComparison& q : quality) worst = std::min(worst, q.verdict);
  return worst;
}

int Comparison::count(Verdict verdict) const {
  int count = 0;
  for (const Row& row : rows) {
    count += row.bytes.verdict == verdict;
    count += row.time && row.time->verdict == verdict;
    for (const QualityComparison& q : row.quality) count += q.verdict == verdict;
  }
  return count;
}

Comparison compare_results(const std::string& a, const std::string& b) {
  Comparison comparison;
  comparison.a = {a, read_results(a, comparison.notes)};
  comparison.b = {b, read_results(b, comparison.notes)};
  const std::size_t notes = comparison.notes.size();
  Pairing(comparison).run();
  if (comparison.rows.empty() && comparison.notes.size() == notes)
    throw InputError(concat("'", a, "' and '", b,
                            "' have no run in common; compare results of the same command and "
                            "spec, as memfloor suite run makes them"));
  return comparison;
}

}  // namespace memfloor

#include "suite/suite_plan.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <regex>

#include "core/error.h"
#include "suite/cases.h"
#include "suite/presets.h"
#include "suite/suite_data.h"

namespace memfloor {
namespace {

using nlohmann::json;

// ---- what the levels are

// The part that a case plays: "baseline", "technique" (one of them alone), a preset's name.
using Roles = std::vector<std::string>;
const Roles kEvery;  // case, whatever its role
const Roles kEnds{"baseline", "leanest"};
const Roles kPresets{"baseline", "paper-best", "leanest"};
const Roles kImportant{"baseline", "technique", "paper-best", "leanest"};
const Roles kHeadline{"baseline", "paper-best"};
const Roles kBaseline{"baseline"};

// Of one family of models; steps are those that command step times.
struct Rows {
  Roles roles;
  std::int64_t steps = 0;
};

enum class Training {
  none,
  trial,  // a few updates, to show that training works
  whole,  // by the recipe, where there is data
};

struct LevelPart {
  std::string command;
  CaseKind kind;
  Rows images, text;
  Training training = Training::none;

  const Rows& rows(ModelFamily family) const {
    return family == ModelFamily::wide_resnet ? images : text;
  }
};

struct Level {
  std::string name;
  std::vector<LevelPart> parts;  // what is timed comes last
};

// A step of DynamicConv takes several times as long as one of a WideResNet.
const std::vector<Level>& levels() {
  const LevelPart predictions{"predict", CaseKind::memory, {kEvery}, {kEvery}};
  const LevelPart timelines{"timeline", CaseKind::memory, {kEnds}, {kEnds}};
  const LevelPart sample{"measure", CaseKind::memory, {kPresets}, {kPresets}};
  const LevelPart few_steps{"step", CaseKind::step, {kImportant, 2}, {kPresets, 2}};
  const LevelPart trials{"train", CaseKind::train, {kHeadline}, {kBaseline}, Training::trial};
  const LevelPart headlines{"train", CaseKind::train, {kHeadline}, {kHeadline}, Training::whole};
  static const std::vector<Level> all{
      {"quick", {predictions, timelines, sample, few_steps, trials}},
      {"headline", {predictions, timelines, sample, few_steps, trials, headlines}},
      {"full",
       {predictions,
        timelines,
        {"measure", CaseKind::memory, {kEvery}, {kEvery}},
        {"step", CaseKind::step, {kEvery, 20}, {kEvery, 5}},
        {"train", CaseKind::train, {kEvery}, {kEvery}, Training::whole}}},
  };
  return all;
}

// What a trial training takes instead of the whole course, for keys that are not given.
const json& trial_settings(ModelFamily family) {
  static const json images{{"max_steps", 20}, {"test_images", 1000}};
  static const json text{
      {"model", "dynamic_conv2_2_64"}, {"max_steps", 30}, {"test_sentences", 10}};
  return family == ModelFamily::wide_resnet ? images : text;
}

// Keys of trainings only: what is measured or timed does not depend on them.
const std::set<std::string>& training_keys() {
  static const std::set<std::string> keys{
      "recipe",         "epochs", "max_steps",     "test_images", "test_sentences",
      "average_epochs", "order",  "learning_rate", "loss_scale",  "loss_scale_window",
      "rewire_stop"};
  return keys;
}

// ---- from a level to tasks

class Planner {
 public:
  explicit Planner(const SuiteRequest& request) : request_(request) {
    for (const std::string& key : technique_keys())
      if (request.given.contains(key))
        throw InputError(concat("--", SpecKey{key, {}, {}}.flag().substr(2),
                                " does not go with the suite, which sets it itself; choose cases "
                                "with --filter"));
  }

  SuitePlan plan(const Level& level) {
    for (const std::string& model : request_.models) {
      const ModelFamily family = family_of(model);
      data_[model] = choose_data(family);
      plan_.notes.push_back(concat(model, " ", data_[model].sentence));
    }
    for (const LevelPart& part : level.parts)
      for (const std::string& model : request_.models) add(part, model);
    filter();
    return std::move(plan_);
  }

 private:
  bool given(const std::string& key) const { return request_.given.contains(key); }

  SuiteData choose_data(ModelFamily family) const {
    if (!given("data")) return find_suite_data(request_.spec.data_dir, family);
    return {request_.spec.data, request_.spec.data_dir, concat("trains on ", request_.spec.data)};
  }

  // The given keys that a model of the family knows, without those of trainings.
  RunSpec base(const std::string& model, bool trains) const {
    const json all = to_json(request_.spec);
    json keys = json::object();
    for (const std::string& key : request_.given) {
      const bool elsewhere = request_.models.size() > 1 && !key_fits(key, family_of(model));
      if (key != "model" && key != "data" && key != "data_dir" && !elsewhere &&
          (trains || !training_keys().contains(key)))
        keys[key] = all[key];
    }
    RunSpec spec;
    spec.model = model;
    set_from_json(spec, keys, "the command line");
    return spec;
  }

  RunSpec training_base(const std::string& model, Training training) const {
    const SuiteData& data = data_.at(model);
    const ModelFamily family = family_of(model);
    RunSpec spec = base(model, true);
    if (!given("recipe")) spec.recipe = "short";
    if (training == Training::trial)
      for (const auto& [key, value] : trial_settings(family).items())
        if (!given(key) && !(key == "model" && request_.models.size() == 1))
          set_from_json(spec, {{key, value}}, "a trial training");
    spec.data = data.data;
    spec.data_dir = data.data_dir;
    return spec;
  }

  const std::vector<Case>& cases_of(const std::string& model, Training training) {
    const auto [place, is_new] = cases_.try_emplace({model, training});
    if (is_new) {
      const RunSpec spec =
          training == Training::none ? base(model, false) : training_base(model, training);
      place->second = suite_cases(spec, {spec.model});
    }
    return place->second;
  }

  void add(const LevelPart& part, const std::string& model) {
    const Rows& rows = part.rows(family_of(model));
    if (part.training == Training::whole && !data_[model].is_real() && !given("data")) {
      plan_.notes.push_back(concat(model,
                                   " is not trained whole: that needs its data; see "
                                   "docs/data.md, and give --data-dir"));
      return;
    }
    std::vector<Case> cases = cases_of(model, part.training);
    std::erase_if(cases, [&](const Case& c) { return c.kind != part.kind; });
    const std::map<std::string, std::string> roles = roles_of(cases);
    for (const Case& c : cases) {
      const auto role = roles.find(c.name);
      if (!rows.roles.empty() &&
          (role == roles.end() ||
           std::find(rows.roles.begin(), rows.roles.end(), role->second) == rows.roles.end()))
        continue;
      SuiteTask task{part.command,
                     c.spec,
                     part.command + c.name.substr(c.name.find('/')),
                     c.name,
                     concat(part.command, "/", file_name(c)),
                     rows.steps,
                     c.impossible};
      if (files_.insert(task.file).second) plan_.tasks.push_back(std::move(task));
    }
  }

  // By the name of the case, of one kind's cases of one model.
  static std::map<std::string, std::string> roles_of(const std::vector<Case>& cases) {
    const CaseKind kind = cases.front().kind;
    const RunSpec baseline = without_techniques(cases.front().spec);
    std::map<std::string, std::string> roles{{name_of_case(kind, baseline), "baseline"}};
    for (const TechniqueSetting& setting : technique_settings(family_of(baseline.model))) {
      RunSpec spec = baseline;
      set_from_json(spec, setting.on, setting.technique);
      roles.emplace(name_of_case(kind, spec), "technique");
    }
    for (const Case& c : cases)
      if (!c.spec.preset.empty()) roles.emplace(c.name, c.spec.preset);
    return roles;
  }

  void filter() {
    if (request_.filter.empty()) return;
    std::regex expression;
    try {
      expression.assign(request_.filter, std::regex::extended);
    } catch (const std::regex_error& error) {
      throw InputError(concat("--filter '", request_.filter,
                              "' is no regular expression: ", error.what(), "; mend it"));
    }
    std::erase_if(plan_.tasks, [&](const SuiteTask& task) {
      return !std::regex_search(task.name, expression) &&
             !std::regex_search(task.alias, expression);
    });
    if (plan_.tasks.empty())
      throw InputError(
          concat("--filter '", request_.filter, "' matches nothing of --", request_.level,
                 "; see the names with: memfloor suite run --dry-run --", request_.level));
  }

  const SuiteRequest& request_;
  std::map<std::string, SuiteData> data_;  // by model
  std::map<std::pair<std::string, Training>, std::vector<Case>> cases_;
  std::set<std::string> files_;
  SuitePlan plan_;
};

}  // namespace

const std::vector<std::string>& suite_levels() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Level& level : levels()) all.push_back(level.name);
    return all;
  }();
  return names;
}

const std::vector<std::string>& suite_commands() {
  static const std::vector<std::string> commands{"predict", "timeline", "measure", "step", "train"};
  return commands;
}

const std::vector<std::string>& technique_keys() {
  static const std::vector<std::string> keys{
      "preset",        "precision",    "rounding",     "norm",       "sparsity",
      "sparse_method", "sparse_scope", "sparse_index", "microbatch", "microbatch_tokens",
      "conv_impl",     "loss_chunk",   "checkpoint"};
  return keys;
}

RunSpec without_techniques(RunSpec spec) {
  const RunSpec off;
  for (const SpecKey& key : spec_keys())
    if (const auto& keys = technique_keys();
        std::find(keys.begin(), keys.end(), key.name) != keys.end())
      std::visit([&](auto member) { spec.*member = off.*member; }, key.member);
  return validated(spec);
}

SuitePlan plan_suite(const SuiteRequest& request) {
  for (const Level& level : levels())
    if (level.name == request.level) return Planner(request).plan(level);
  throw Error(concat("the suite has no level '", request.level, "'"));
}

std::vector<SuiteTask> shard_of(const std::vector<SuiteTask>& tasks,
                                const std::vector<double>& costs, std::int64_t shard,
                                std::int64_t shards) {
  std::vector<std::size_t> order(tasks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });
  // The dearest first, each to the shard that has least.
  std::vector<double> loads(static_cast<std::size_t>(shards), 0);
  std::vector<bool> mine(tasks.size(), false);
  for (const std::size_t index : order) {
    const auto least = std::min_element(loads.begin(), loads.end());
    *least += costs[index];
    mine[index] = least - loads.begin() == shard - 1;
  }
  std::vector<SuiteTask> chosen;
  for (std::size_t i = 0; i < tasks.size(); ++i)
    if (mine[i]) chosen.push_back(tasks[i]);
  return chosen;
}

}  // namespace memfloor

#include "suite/suite_summary.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <vector>

#include "core/error.h"
#include "suite/models.h"
#include "suite/progress_line.h"
#include "suite/suite_plan.h"

namespace memfloor {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// All results of one case: by command, of trainings several.
using Results = std::map<std::string, std::vector<json>>;

struct Workload {
  std::string model, name;
  std::map<std::string, Results> rows;  // by the techniques; "": the baseline
};

std::vector<std::string> files_of(const fs::path& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    if (entry->path().extension() == ".json" && entry->is_regular_file(error))
      files.push_back(entry->path().string());
  std::sort(files.begin(), files.end());
  return files;
}

RunSpec spec_of(const json& result) {
  RunSpec spec;
  set_from_json(spec, result.at("spec"), "its spec");
  return spec;
}

// The bytes of a step of images do not depend on which images they are.
RunSpec workload_of(const RunSpec& spec) {
  RunSpec plain = without_techniques(spec);
  if (family_of(plain.model) == ModelFamily::wide_resnet) plain.data = "synthetic";
  return plain;
}

std::string workload_name(const RunSpec& plain) {
  const bool text = family_of(plain.model) == ModelFamily::dynamic_conv;
  return concat(plain.model, text ? ", data=" + plain.data : "",
                key_values(plain, {"device", "batch_size", "max_tokens", "sentence_length"}));
}

// "/precision=bf16/sparsity=0.8"; a preset is what it sets.
std::string techniques_of(const RunSpec& spec) {
  std::vector<std::string> keys = technique_keys();
  std::erase(keys, "preset");
  return key_values(spec, keys);
}

// Of several measures of the same bytes, the one that saw most.
const json& bytes_of(const Results& results) {
  for (const char* command : {"measure", "step", "predict", "timeline", "train"})
    if (const auto found = results.find(command); found != results.end())
      return found->second.front();
  throw Error("a case without results");
}

// Null where the division has no meaning.
json ratio(const json& a, const json& b) {
  return a.is_number() && b.is_number() && b.get<double>() != 0
             ? json(a.get<double>() / b.get<double>())
             : json();
}

json step_seconds(const Results& results) {
  const auto found = results.find("step");
  return found == results.end() ? json() : found->second.front()["time"]["step_seconds_median"];
}

json training_of(const json& result) {
  const json &spec = result["spec"], &quality = result["quality"];
  json training{{"updates_limit", spec["max_steps"]}};
  for (const char* key : {"data", "recipe", "epochs", "seed"}) training[key] = spec[key];
  for (const char* key : {"test_accuracy", "perplexity", "bleu"})
    training[key] = quality.value(key, json());
  training["peak_total_bytes"] = result["memory"]["peak_total_bytes"];
  return training;
}

// What a person or another program wrote may be anything.
void check_bytes(const json& memory) {
  for (const json& bytes : {memory.at("peak_total_bytes"), memory.at("paper").at("total_bytes")})
    if (!bytes.is_number_unsigned() || bytes == 0)
      throw InputError(concat("its bytes are not whole numbers above 0, but ", bytes.dump()));
}

json row_of(const std::string& techniques, const Results& results, const Results* baseline) {
  const json& memory = bytes_of(results)["memory"];
  const json& flops = bytes_of(results)["flops"];
  const json base = baseline ? bytes_of(*baseline)["memory"] : json();
  const auto times_less = [&](const json::json_pointer& place) {
    return baseline ? ratio(base.at(place), memory.at(place)) : json();
  };
  const json::json_pointer peak("/peak_total_bytes"), paper("/paper/total_bytes");
  json row{
      {"techniques", techniques},
      {"preset", bytes_of(results)["spec"].value("preset", json())},
      {"commands", json::array()},
      {"peak_total_bytes", memory.at(peak)},
      {"peak_times_less", times_less(peak)},
      {"paper_total_bytes", memory.at(paper)},
      {"paper_times_less", times_less(paper)},
      {"recompute_share",
       ratio(flops["recompute"], flops["forward"].get<double>() + flops["backward"].get<double>())},
      {"step_seconds_median", step_seconds(results)},
      {"relative_speed", baseline ? ratio(step_seconds(*baseline), step_seconds(results)) : json()},
      {"trainings", json::array()}};
  for (const auto& [command, of_command] : results) row["commands"].push_back(command);
  if (const auto trained = results.find("train"); trained != results.end())
    for (const json& result : trained->second) row["trainings"].push_back(training_of(result));
  return row;
}

json workload_json(const Workload& workload) {
  const auto baseline = workload.rows.find("");
  json rows = json::array();
  for (const auto& [techniques, results] : workload.rows)
    rows.push_back(
        row_of(techniques, results, baseline == workload.rows.end() ? nullptr : &baseline->second));
  // The baseline, then from the fattest to the leanest.
  std::stable_sort(rows.begin(), rows.end(), [](const json& a, const json& b) {
    const bool a_first = a["techniques"] == "", b_first = b["techniques"] == "";
    if (a_first != b_first) return a_first;
    return a["peak_total_bytes"].get<std::int64_t>() > b["peak_total_bytes"].get<std::int64_t>();
  });
  return {{"model", workload.model}, {"workload", workload.name}, {"rows", rows}};
}

}  // namespace

json suite_summary(const std::string& folder) {
  std::map<std::string, Workload> workloads;
  json unreadable = json::array();
  std::set<std::string> codes;
  std::int64_t compared = 0, equal = 0;
  for (const std::string& command : suite_commands())
    for (const std::string& file : files_of(fs::path(folder) / command)) try {
        json result = json::parse(std::ifstream(file));
        const RunSpec spec = spec_of(result), plain = workload_of(spec);
        if (result.at("command") != command)
          throw InputError(concat("it is of command ", result["command"].dump()));
        Workload& workload = workloads[case_name(plain)];
        workload.model = plain.model;
        workload.name = workload_name(plain);
        codes.insert(result.at("environment").value("source_sha256", json()).dump());
        check_bytes(result.at("memory"));
        Results alone{{command, {result}}};
        row_of("", alone, &alone);  // whatever it lacks is told here
        workload.rows[techniques_of(spec)][command].push_back(std::move(result));
      } catch (const json::parse_error&) {
        unreadable.push_back({{"file", file}, {"reason", "it is no JSON, or was cut off"}});
      } catch (const json::exception&) {
        unreadable.push_back({{"file", file}, {"reason", "it lacks what a result has"}});
      } catch (const Error& error) {
        unreadable.push_back({{"file", file}, {"reason", error.what()}});
      }
  json all = json::array();
  for (const auto& [name, workload] : workloads) {
    all.push_back(workload_json(workload));
    for (const auto& [techniques, results] : workload.rows) {
      const auto predicted = results.find("predict"), measured = results.find("measure");
      if (predicted == results.end() || measured == results.end()) continue;
      const json &a = predicted->second.front()["memory"], &b = measured->second.front()["memory"];
      ++compared;
      equal += a["at_peak"] == b["at_peak"] && a["category_peak"] == b["category_peak"];
    }
  }
  return {{"folder", folder},
          {"workloads", all},
          {"predicted_and_measured", compared},
          {"of_them_equal", equal},
          {"versions_of_the_code", codes.size()},
          {"unreadable", unreadable}};
}

namespace {

std::string times(const json& value) {
  return value.is_null() ? "" : fixed(value.get<double>(), 1) + "x";
}

std::string quality_text(const json& row) {
  std::string text;
  for (const json& training : row["trainings"]) {
    std::string figure;
    if (training["test_accuracy"].is_number())
      figure = fixed(100 * training["test_accuracy"].get<double>(), 2) + " %";
    if (training["perplexity"].is_number())
      figure = "perplexity " + fixed(training["perplexity"].get<double>(), 2);
    if (training["bleu"].is_number())
      figure = concat("BLEU ", fixed(training["bleu"].get<double>(), 2));
    const json& limit = training["updates_limit"];
    text += concat(text.empty() ? "" : "; ", figure, " (", training["data"].get<std::string>(),
                   ", ", training["recipe"].get<std::string>(),
                   limit.is_number() && limit > 0 ? concat(", ", limit, " updates") : "", ")");
  }
  return text;
}

std::string row_text(const json& row) {
  std::string name = row["techniques"].get<std::string>();
  name = name.empty() ? "no technique" : name.substr(1);  // it begins with a slash
  if (row["preset"].is_string()) name = concat(row["preset"].get<std::string>(), ": ", name);
  const auto share = [](const json& value) {
    return value.is_null() ? "" : fixed(100 * value.get<double>(), 0) + " %";
  };
  const json& speed = row["relative_speed"];
  char text[128];
  std::snprintf(text, sizeof text, "  %10s %7s  %10s %7s  %6s  %5s  ",
                human_bytes(row["peak_total_bytes"].get<std::int64_t>()).c_str(),
                times(row["peak_times_less"]).c_str(),
                human_bytes(row["paper_total_bytes"].get<std::int64_t>()).c_str(),
                times(row["paper_times_less"]).c_str(), share(row["recompute_share"]).c_str(),
                speed.is_null() ? "" : fixed(speed.get<double>(), 2).c_str());
  const std::string quality = quality_text(row);
  return concat(text, name, quality.empty() ? "" : concat("  -> ", quality), "\n");
}

}  // namespace

std::string summary_text(const json& summary) {
  std::string text;
  for (const json& workload : summary["workloads"]) {
    text += workload["workload"].get<std::string>() +
            "\n  at the peak    less  the paper's    less   again  speed\n";
    std::size_t predicted = 0;
    for (const json& row : workload["rows"])
      if (row["commands"] == json{"predict"} && row["techniques"] != "" && row["preset"].is_null())
        ++predicted;
      else
        text += row_text(row);
    if (predicted > 0)
      text += concat("  and ", predicted, " more of which there is a prediction only\n");
  }
  if (text.empty()) text = concat("'", summary["folder"].get<std::string>(), "' has no results\n");
  if (summary["predicted_and_measured"] > 0)
    text += concat("predicted and measured bytes are equal in ", summary["of_them_equal"], " of ",
                   summary["predicted_and_measured"], " cases\n");
  if (summary["versions_of_the_code"] > 1)
    text +=
        concat("these results are of ", summary["versions_of_the_code"], " versions of the code\n");
  for (const json& file : summary["unreadable"])
    text += concat("not read: ", file["file"].get<std::string>(), ": ",
                   file["reason"].get<std::string>(), "\n");
  return text;
}

}  // namespace memfloor

#include "suite/stored_results.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "core/error.h"
#include "core/memory_record.h"

namespace memfloor {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()).good())
    throw InputError(concat("cannot read '", path, "': ",
                            file ? "it is empty" : std::strerror(errno), "; check the file"));
  return text.str();
}

json parse_strictly(const std::string& text, const std::string& path) {
  std::vector<std::set<std::string>> names;  // of the objects that are open
  const auto check = [&](int, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) names.emplace_back();
    if (event == json::parse_event_t::object_end) names.pop_back();
    if (event == json::parse_event_t::key && !names.back().insert(value.get<std::string>()).second)
      throw InputError(concat("'", path, "' has the key ", value.dump(), " twice; keep one"));
    return true;
  };
  try {
    return json::parse(text, check);
  } catch (const json::parse_error& error) {
    throw InputError(concat("'", path, "' is not JSON at byte ", error.byte,
                            " (what is unknown is null, never NaN); write it again"));
  } catch (const json::out_of_range&) {
    throw InputError(concat("'", path, "' has a number that is too large; write it again"));
  }
}

// What a comparison takes for granted.
void check_form(const json& content, const std::string& path) {
  const auto require = [&](bool good, const std::string& place, const char* what) {
    if (!good)
      throw InputError(concat("'", path, "' is not a good result: ", place, " is not ", what,
                              "; scripts/check_results tells all that is wrong with it"));
  };
  require(value_at(content, "schema_version") == 1, "schema_version", "1");
  require(value_at(content, "command").is_string(), "command", "a text");
  require(value_at(content, "memory.peak_total_bytes").is_number_integer(),
          "memory.peak_total_bytes", "a whole number");
  for (const char* split : {"memory.at_peak", "memory.category_peak"})
    for (int c = 0; c < kCategoryCount; ++c) {
      const std::string place = concat(split, ".", name_of(static_cast<Category>(c)));
      require(value_at(content, place).is_number_integer(), place, "a whole number");
    }
  require(value_at(content, "environment").is_object(), "environment", "an object");
  const json& seconds = value_at(content, "time.step_seconds");
  require(seconds.is_null() || seconds.is_array(), "time.step_seconds", "a list");
  const auto is_time = [](const json& s) { return s.is_number() && s.get<double>() > 0; };
  require(std::all_of(seconds.begin(), seconds.end(), is_time), "time.step_seconds",
          "a list of positive numbers");
}

StoredResult result_of(json content, const std::string& path) {
  check_form(content, path);
  StoredResult result;
  result.path = path;
  result.command = content["command"];
  set_from_json(result.spec, value_at(content, "spec"), concat("the spec of '", path, "'"));
  try {
    result.spec = validated(result.spec);  // keys that are younger than the file get their values
  } catch (const InputError&) {
    // Another version could run it, whose files are as good.
  }
  result.content = std::move(content);
  return result;
}

}  // namespace

const json& value_at(const json& object, const std::string& place) {
  static const json none;
  const json* value = &object;
  std::istringstream names(place);
  for (std::string name; std::getline(names, name, '.');) {
    if (!value->is_object() || !value->contains(name)) return none;
    value = &(*value)[name];
  }
  return *value;
}

std::vector<StoredResult> read_results(const std::string& path, std::vector<std::string>& notes) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) throw InputError(concat("there is no '", path, "'; check the path"));
  if (!fs::is_directory(status)) {
    json content = parse_strictly(text_of(path), path);
    if (!value_at(content, "command").is_string())
      throw InputError(concat("'", path,
                              "' is JSON, but not a result of memfloor; give a file "
                              "that was written with --out"));
    std::vector<StoredResult> one;
    one.push_back(result_of(std::move(content), path));
    return one;
  }
  std::vector<std::string> paths;
  for (fs::recursive_directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error))
    if (entry->path().extension() == ".json" && entry->is_regular_file())
      paths.push_back(entry->path().string());
  if (error) throw InputError(concat("cannot read folder '", path, "': ", error.message()));
  std::sort(paths.begin(), paths.end());
  std::vector<StoredResult> results;
  std::map<std::string, std::string> seen;  // contents -> path
  for (const std::string& file : paths) {
    std::string text = text_of(file);
    json content = parse_strictly(text, file);
    if (!value_at(content, "command").is_string()) continue;
    const auto [first, fresh] = seen.emplace(std::move(text), file);
    if (fresh)
      results.push_back(result_of(std::move(content), file));
    else
      notes.push_back(concat("'", file, "' is a copy of '", first->second, "' and not counted"));
  }
  if (results.empty())
    throw InputError(concat("there is no result file in '", path,
                            "'; memfloor suite run --results ", path, " makes some"));
  return results;
}

}  // namespace memfloor

#include "suite/suite_data.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/error.h"

namespace memfloor {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    if (entry->is_directory(error)) folders.push_back(entry->path());
  std::sort(folders.begin(), folders.end());
  return folders;
}

SuiteData find_images(const fs::path& folder) {
  for (const fs::path& place : {folder, folder / "cifar-10-batches-bin"})
    if (fs::exists(place / "data_batch_1.bin"))
      return {"cifar10", folder.string(), concat("trains on CIFAR-10 in '", place.string(), "'")};
  return {};
}

// A corpus that is damaged counts too: who trains on it says what is wrong.
SuiteData find_text(const fs::path& folder) {
  std::vector<fs::path> places{folder};
  for (const fs::path& child : folders_in(folder)) {
    places.push_back(child);
    for (const fs::path& grandchild : folders_in(child)) places.push_back(grandchild);
  }
  SuiteData best;
  std::int64_t most = -1;
  for (const fs::path& place : places) {
    if (!fs::exists(place / "corpus.json")) continue;
    const auto record = nlohmann::json::parse(std::ifstream(place / "corpus.json"), nullptr, false);
    const auto pairs = nlohmann::json::json_pointer("/splits/train/pairs");
    const std::int64_t size = record.contains(pairs) && record[pairs].is_number_integer()
                                  ? record[pairs].get<std::int64_t>()
                                  : 0;
    if (size <= most) continue;
    most = size;
    best = {"translation", place.string(),
            concat("trains on the corpus in '", place.string(), "', ", size, " pairs")};
  }
  return best;
}

}  // namespace

SuiteData find_suite_data(const std::string& folder, ModelFamily family) {
  const bool images = family == ModelFamily::wide_resnet;
  if (!folder.empty() && !fs::is_directory(folder))
    throw InputError(concat("--data-dir '", folder, "' is no folder; check the path"));
  SuiteData found;
  if (!folder.empty()) found = images ? find_images(folder) : find_text(folder);
  if (found.sentence.empty())
    found.sentence = concat(
        "trains on the built-in ", images ? "images" : "language pair",
        ", whose quality says nothing about real data (",
        folder.empty()
            ? "no --data-dir is given"
            : concat("'", folder, "' has no ", images ? "cifar-10-batches-bin" : "prepared corpus"),
        ")");
  return found;
}

}  // namespace memfloor

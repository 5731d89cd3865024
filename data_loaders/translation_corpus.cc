// Parallel text as scripts/prepare_iwslt14 leaves it: a folder that corpus.json describes.
#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/mapped_file.h"
#include "core/sha256.h"
#include "core/text_lines.h"
#include "data_loaders/dictionary.h"
#include "data_loaders/token_file.h"
#include "data_loaders/translation.h"

namespace memfloor {
namespace {

using nlohmann::json;

constexpr const char* kAdvice = "prepare the data again with scripts/prepare_iwslt14";
constexpr std::array kSplits = {Split::train, Split::test, Split::valid};
constexpr std::array kSplitNames = {"train", "test", "valid"};
constexpr std::array kSides = {Side::source, Side::target};

std::size_t number(Split split) { return static_cast<std::size_t>(split); }
std::size_t number(Side side) { return static_cast<std::size_t>(side); }

/// What corpus.json says.
struct Description {
  std::string name;
  std::array<std::string, 2> languages;       // by side
  std::array<std::int64_t, 2> vocabularies;   // by side
  std::array<std::int64_t, 3> pairs;          // by split
  std::map<std::string, std::string> sha256;  // by file
  json notes;
};

Description read_description(const std::string& path) {
  const auto refuse = [&](const auto&... fault) {
    throw InputError(concat("'", path, "' ", fault..., "; ", kAdvice));
  };
  std::string text;
  for (const std::string& line : read_lines(path, kAdvice)) text += line + "\n";
  const json all = json::parse(text, nullptr, false);
  if (all.is_discarded()) refuse("is not JSON");

  // A value by its place, as in {"splits", "train", "pairs"}.
  const auto value = [&](std::initializer_list<std::string> keys) {
    const json* found = &all;
    std::string place;
    for (const std::string& key : keys) {
      place += (place.empty() ? "" : ".") + key;
      if (!found->is_object() || !found->contains(key)) refuse("lacks '", place, "'");
      found = &found->at(key);
    }
    return *found;
  };
  const auto count = [&](std::initializer_list<std::string> keys) {
    const json number = value(keys);
    if (!number.is_number_unsigned()) refuse("has ", number.dump(), " for a count");
    return number.get<std::int64_t>();
  };
  const auto name = [&](const char* key) {
    const json name = value({key});
    if (!name.is_string() || name.get<std::string>().empty() ||
        name.get<std::string>().find('/') != std::string::npos)
      refuse("has ", name.dump(), " for its '", key, "', which is a plain name");
    return name.get<std::string>();
  };
  if (const json format = value({"format"}); format != 1)
    refuse("has format ", format.dump(), ", and 1 is known");
  Description description;
  description.name = name("name");
  description.languages = {name("source"), name("target")};
  for (const Side side : kSides)
    description.vocabularies[number(side)] =
        count({"vocabulary", description.languages[number(side)]});
  for (const Split split : kSplits)
    description.pairs[number(split)] = count({"splits", kSplitNames[number(split)], "pairs"});
  const json files = value({"files"});
  for (const auto& [file, sha256] : files.items()) {
    if (!sha256.is_string()) refuse("states no SHA-256 for ", file);
    description.sha256[file] = sha256.get<std::string>();
  }
  description.notes = all.value("notes", json::array());
  if (!description.notes.is_array() ||
      !std::all_of(description.notes.begin(), description.notes.end(),
                   [](const json& note) { return note.is_string(); }))
    refuse("has ", description.notes.dump(), " for its 'notes', which are sentences");
  return description;
}

class FileCorpus final : public TranslationCorpus {
 public:
  explicit FileCorpus(const std::filesystem::path& folder)
      : folder_(folder), description_(read_description(path("corpus.json"))) {
    for (const Side side : kSides) {
      const std::string name = "dict." + language(side) + ".txt";
      words_[number(side)] = read_dictionary(path(name), kAdvice);
      check_count(path(name), words_[number(side)].size(), vocabulary(side), "entries");
      check_sha256(name);
    }
    for (const Split split : kSplits)
      for (const Side side : kSides) open(split, side);
  }

  std::int64_t size(Split split) const override { return description_.pairs[number(split)]; }
  std::int64_t vocabulary(Side side) const override {
    return description_.vocabularies[number(side)];
  }

  std::int64_t length(Split split, Side side, std::int64_t index) const override {
    return static_cast<std::int64_t>(file(split, side).sentence(index).size()) + 1;
  }

  void read(Split split, Side side, std::int64_t index, std::int32_t* tokens) const override {
    for (const std::uint16_t token : file(split, side).sentence(index)) *tokens++ = token;
    *tokens = kEnd;
  }

  std::string word(Side side, std::int32_t token) const override {
    MEMFLOOR_CHECK(token >= 0 && token < vocabulary(side), "the vocabulary has no entry ", token);
    return words_[number(side)][static_cast<std::size_t>(token)];
  }

  std::vector<std::string> references(Split split) const override {
    MEMFLOOR_CHECK(split != Split::train, "training pairs have no reference text");
    const std::string name = concat(kSplitNames[number(split)], ".tok.", language(Side::target));
    std::vector<std::string> lines = read_lines(path(name), kAdvice);
    check_count(path(name), lines.size(), size(split), "lines");
    check_sha256(name);
    return lines;
  }

  json provenance() const override {
    return {{"name", description_.name},
            {"sha256", description_.sha256},
            {"notes", description_.notes}};
  }

 private:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  const std::string& language(Side side) const { return description_.languages[number(side)]; }
  const TokenFile& file(Split split, Side side) const {
    return files_[number(split) * kSides.size() + number(side)];
  }

  /// In the order that file() expects.
  void open(Split split, Side side) {
    const std::string name = concat(kSplitNames[number(split)], ".", language(side), ".bin");
    const TokenFile& opened = files_.emplace_back(path(name), kAdvice);
    check_count(path(name), opened.sentences(), size(split), "sentences");
    check_count(path(name), opened.vocabulary(), vocabulary(side), "entries of its vocabulary");
    check_sha256(name);
  }

  /// After checks that can say more about what is wrong.
  void check_sha256(const std::string& name) const {
    const auto stated = description_.sha256.find(name);
    if (stated == description_.sha256.end())
      throw InputError(
          concat("'", path("corpus.json"), "' states no SHA-256 of ", name, "; ", kAdvice));
    const MappedFile file(path(name), kAdvice);
    if (stated->second != sha256_hex(file.data(), static_cast<std::size_t>(file.bytes())))
      throw InputError(
          concat("'", path(name), "' has not the SHA-256 that corpus.json states; ", kAdvice));
  }

  static void check_count(const std::string& path, std::uint64_t found, std::int64_t stated,
                          const char* things) {
    if (static_cast<std::int64_t>(found) != stated)
      throw InputError(concat("'", path, "' has ", found, " ", things, ", but corpus.json states ",
                              stated, "; ", kAdvice));
  }

  std::filesystem::path folder_;
  Description description_;
  std::array<std::vector<std::string>, 2> words_;  // by side
  std::vector<TokenFile> files_;                   // by split, then side
};

}  // namespace

std::unique_ptr<TranslationCorpus> open_translation_corpus(const std::string& directory) {
  return std::make_unique<FileCorpus>(directory);
}

}  // namespace memfloor

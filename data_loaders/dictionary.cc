#include "data_loaders/dictionary.h"

#include <algorithm>
#include <unordered_set>

#include "core/error.h"
#include "core/text_lines.h"

namespace memfloor {

std::vector<std::string> read_dictionary(const std::string& path, std::string_view advice) {
  std::vector<std::string> words = {"<s>", "<pad>", "</s>", "<unk>"};
  std::unordered_set<std::string> known(words.begin(), words.end());
  const std::vector<std::string> lines = read_lines(path, advice);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto refuse = [&](const auto&... fault) {
      throw InputError(concat("'", path, "' ", fault..., " in line ", i + 1, "; ", advice));
    };
    const std::size_t space = lines[i].find(' ');
    const std::string word = lines[i].substr(0, space);
    const std::string count = space == std::string::npos ? "" : lines[i].substr(space + 1);
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    if (word.empty() || count.empty() || !std::all_of(count.begin(), count.end(), is_digit))
      refuse("has something other than a word, a space and its count");
    if (!known.insert(word).second) refuse("has the word '", word, "' for the second time");
    words.push_back(word);
  }
  return words;
}

}  // namespace memfloor

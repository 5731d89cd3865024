#include "suite/bleu_tokenizer.h"

#include "core/text_lines.h"

namespace memfloor {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_stop(char c) { return c == '.' || c == ','; }
bool is_ascii_space(char32_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// As Python's str.split().
bool is_unicode_space(char32_t c) {
  return is_ascii_space(c) || (c >= 0x1C && c <= 0x1F) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

char32_t lower_ascii(char32_t c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; }

char32_t lower_letter(char32_t c) {
  // Every `step`-th letter from `first` to `last` has its small form `distance` further on.
  constexpr struct {
    char32_t first, last, step, distance;
  } kRanges[] = {
      {0xC0, 0xD6, 1, 32},   {0xD8, 0xDE, 1, 32},                          // Latin-1
      {0x100, 0x12E, 2, 1},  {0x132, 0x136, 2, 1},  {0x139, 0x147, 2, 1},  // Latin Extended-A
      {0x14A, 0x176, 2, 1},  {0x179, 0x17D, 2, 1},  {0x218, 0x21A, 2, 1},
      {0x400, 0x40F, 1, 80}, {0x410, 0x42F, 1, 32}, {0x490, 0x490, 1, 1}};  // Cyrillic
  if (c == 0x178) return 0xFF;                                              // y with two dots
  for (const auto& range : kRanges)
    if (c >= range.first && c <= range.last && (c - range.first) % range.step == 0)
      return c + range.distance;
  return lower_ascii(c);
}

/// `text` with every code point put through `map`. Bytes that are no UTF-8 stay.
template <class Map>
std::string mapped(std::string_view text, const Map& map) {
  std::string result;
  while (!text.empty()) {
    const auto [value, bytes] = first_code_point(text);
    if (bytes > 0)
      append_code_point(result, map(value));
    else
      result += text[0];
    text.remove_prefix(static_cast<std::size_t>(bytes > 0 ? bytes : 1));
  }
  return result;
}

/// The words between code points of white space, joined by single spaces.
template <class IsSpace>
std::string single_spaced(std::string_view text, const IsSpace& is_space) {
  std::string result;
  bool between = false;
  while (!text.empty()) {
    const auto [value, bytes] = first_code_point(text);
    const auto size = static_cast<std::size_t>(bytes > 0 ? bytes : 1);
    if (bytes > 0 && is_space(value)) {
      between = !result.empty();
    } else {
      if (between) result += ' ';
      between = false;
      result += text.substr(0, size);
    }
    text.remove_prefix(size);
  }
  return result;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

/// Sets apart neighbours a, b that match: before a, between them, after b. As a regular
/// expression's substitution: from the left, and no byte belongs to two matches. Bytes serve for
/// characters, because those beyond ASCII matter only for not being digits or stops.
template <class Match>
std::string set_apart(const std::string& text, const Match& match, std::string_view before,
                      std::string_view after) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i + 1 < text.size() && match(text[i], text[i + 1])) {
      result += before;
      result += text[i];
      result += ' ';
      result += text[++i];
      result += after;
    } else {
      result += text[i];
    }
  }
  return result;
}

/// sacrebleu's tokenizer_13a and tokenizer_re, rule by rule.
std::string tokenized_13a(std::string text) {
  replace_all(text, "<skipped>", "");
  replace_all(text, "&quot;", "\"");
  replace_all(text, "&amp;", "&");
  replace_all(text, "&lt;", "<");
  replace_all(text, "&gt;", ">");
  text = " " + text + " ";
  constexpr std::string_view kPunctuation = R"( !"#$%&()*+/:;<=>?@[\]^_`{|}~)";  // no ' , - .
  std::string apart;
  for (const char c : text) {
    if (kPunctuation.find(c) == std::string_view::npos)
      apart += c;
    else
      apart.append({' ', c, ' '});
  }
  // A stop that no digit precedes, then one that no digit follows, then a dash after a digit.
  apart = set_apart(
      apart, [](char a, char b) { return !is_digit(a) && is_stop(b); }, "", " ");
  apart = set_apart(
      apart, [](char a, char b) { return is_stop(a) && !is_digit(b); }, " ", "");
  return set_apart(
      apart, [](char a, char b) { return is_digit(a) && b == '-'; }, "", " ");
}

}  // namespace

std::string bleu_words(std::string_view line, BleuTokenizer tokenizer, bool lower_case) {
  if (tokenizer == BleuTokenizer::none)
    return single_spaced(lower_case ? mapped(line, lower_ascii) : std::string(line),
                         is_ascii_space);
  return single_spaced(tokenized_13a(lower_case ? mapped(line, lower_letter) : std::string(line)),
                       is_unicode_space);
}

}  // namespace memfloor

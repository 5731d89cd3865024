// Text files as people write them: UTF-8, a sentence a line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace memfloor {

/// The lines of `path` without their '\n'; the last one may lack it. Throws InputError for a file
/// that is missing, empty or not UTF-8; `advice` ends the sentence.
std::vector<std::string> read_lines(const std::string& path,
                                    std::string_view advice = "check the path");

/// One code point of UTF-8 text and its bytes; `bytes` 0 where the text begins with none.
struct CodePoint {
  char32_t value;
  int bytes;
};

/// The first code point of `text`; surrogates and overlong forms are none.
CodePoint first_code_point(std::string_view text);

/// Appends `value` in UTF-8.
void append_code_point(std::string& text, char32_t value);

}  // namespace memfloor

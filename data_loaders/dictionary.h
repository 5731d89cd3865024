// A vocabulary as fairseq writes it: dict.<language>.txt, "word count" in each line, most frequent
// first. The four special entries come before and are not written.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace memfloor {

/// The text of every entry, the special ones included: <s>, <pad>, </s>, <unk>, then the file's.
/// Throws InputError for a line of another form or a word that comes twice; `advice` ends the
/// sentence.
std::vector<std::string> read_dictionary(const std::string& path, std::string_view advice);

}  // namespace memfloor

// Words cut into pieces by subword-nmt: every piece but a word's last ends in "@@".
#pragma once

#include <string>
#include <string_view>

namespace memfloor {

/// The sentence with its words whole again: "@@ " is removed, and so is "@@" at the end, where a
/// translation stopped inside a word. As fairseq's --remove-bpe.
std::string without_bpe(std::string_view sentence);

}  // namespace memfloor

#include "data_loaders/bpe.h"

namespace memfloor {

std::string without_bpe(std::string_view sentence) {
  constexpr std::string_view kJoint = "@@ ";
  std::string text = std::string(sentence) + " ";
  for (std::size_t at = 0; (at = text.find(kJoint, at)) != std::string::npos;)
    text.erase(at, kJoint.size());
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

}  // namespace memfloor

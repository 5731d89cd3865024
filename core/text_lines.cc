#include "core/text_lines.h"

#include "core/error.h"
#include "core/mapped_file.h"

namespace memfloor {
namespace {

/// Where `text` stops being UTF-8; its size where it does not.
std::size_t valid_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const int bytes = first_code_point(text.substr(at)).bytes;
    if (bytes == 0) break;
    at += static_cast<std::size_t>(bytes);
  }
  return at;
}

}  // namespace

std::vector<std::string> read_lines(const std::string& path, std::string_view advice) {
  const MappedFile file(path, advice);
  std::string_view text(reinterpret_cast<const char*>(file.data()),
                        static_cast<std::size_t>(file.bytes()));
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (valid_prefix(line) != line.size())
      throw InputError(concat("'", path, "' is not valid UTF-8 in line ", lines.size() + 1,
                              ", byte ", valid_prefix(line) + 1, "; ", advice));
    lines.emplace_back(line);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

CodePoint first_code_point(std::string_view text) {
  constexpr CodePoint kNone{0, 0};
  if (text.empty()) return kNone;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const int bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < static_cast<std::size_t>(bytes)) return kNone;
  char32_t value = lead & (0x7Fu >> bytes);
  for (int i = 1; i < bytes; ++i) {
    if ((byte(static_cast<std::size_t>(i)) & 0xC0) != 0x80) return kNone;
    value = value << 6 | (byte(static_cast<std::size_t>(i)) & 0x3F);
  }
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // by bytes; below is overlong
  const bool surrogate = value >= 0xD800 && value < 0xE000;
  if (value < kLeast[bytes] || value > 0x10FFFF || surrogate) return kNone;
  return {value, bytes};
}

void append_code_point(std::string& text, char32_t value) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
  const auto put_rest = [&](int shift) { put(0x80 | (value >> shift & 0x3F)); };
  if (value < 0x80) {
    put(value);
  } else if (value < 0x800) {
    put(0xC0 | value >> 6), put_rest(0);
  } else if (value < 0x10000) {
    put(0xE0 | value >> 12), put_rest(6), put_rest(0);
  } else {
    put(0xF0 | value >> 18), put_rest(12), put_rest(6), put_rest(0);
  }
}

}  // namespace memfloor

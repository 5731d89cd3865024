// Lines of UTF-8 text, and what is none.
#include "core/text_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/temporary_folder.h"

namespace memfloor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(TextLines, EndWithANewlineOrTheFile) {
  TemporaryFolder folder;
  const auto lines_of = [&](std::string_view text) {
    write_file(folder / "a", text);
    return read_lines(folder / "a");
  };
  EXPECT_THAT(lines_of("a\n\n b \r\nü\n"), ElementsAre("a", "", " b \r", "ü"));
  EXPECT_THAT(lines_of("a\nb"), ElementsAre("a", "b"));
  EXPECT_THAT(lines_of("\n"), ElementsAre(""));
  EXPECT_THAT(error_of<InputError>([&] { lines_of(""); }), HasSubstr("it is empty; check"));
  EXPECT_THAT(error_of<InputError>([&] { lines_of("ok\nab\xc3\n\xa9"); }),
              HasSubstr("a' is not valid UTF-8 in line 2, byte 3; check the path"));
}

TEST(CodePoints, AreReadAndWritten) {
  for (const char32_t value :
       {0x0u, 0x7fu, 0x80u, 0x7ffu, 0x800u, 0xd7ffu, 0xe000u, 0xffffu, 0x10000u, 0x10ffffu}) {
    std::string text;
    append_code_point(text, value);
    const CodePoint point = first_code_point(text + "x");
    EXPECT_EQ(point.value, value);
    EXPECT_EQ(static_cast<std::size_t>(point.bytes), text.size());
  }
  std::string text;
  for (const char32_t value : U"ßж€😀")
    if (value) append_code_point(text, value);
  EXPECT_EQ(text, "ßж€😀");
  for (const char* fault :
       {"\x80", "\xc1\xbf", "\xc3", "\xc3x", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xe2\x82",
        "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", ""})
    EXPECT_EQ(first_code_point(fault).bytes, 0) << testing::PrintToString(fault);
}

}  // namespace
}  // namespace memfloor

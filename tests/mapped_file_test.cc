// A file's bytes without a copy, and a clear sentence where there are none.
#include "core/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <utility>

#include "core/error.h"
#include "core/sha256.h"
#include "tests/temporary_folder.h"

namespace memfloor {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.data()), static_cast<std::size_t>(file.bytes())};
}

TEST(MappedFile, ShowsTheBytes) {
  const TemporaryFolder folder;
  const std::string path = folder / "data";
  write_file(path, std::string("a\0b", 3));
  const MappedFile file(path);
  EXPECT_EQ(text_of(file), std::string("a\0b", 3));
  EXPECT_EQ(file.path(), path);
}

TEST(MappedFile, Moves) {
  const TemporaryFolder folder;
  write_file(folder / "a", "first");
  write_file(folder / "b", "second");
  MappedFile a(folder / "a"), b(folder / "b");
  MappedFile moved(std::move(a));
  EXPECT_EQ(text_of(moved), "first");
  moved = std::move(b);
  EXPECT_EQ(text_of(moved), "second");
}

TEST(MappedFile, RefusesWhatIsNoFileWithBytes) {
  const TemporaryFolder folder;
  const auto fault = [&](const std::string& path) {
    return error_of<InputError>([&] { MappedFile file(path, "fetch it"); });
  };
  EXPECT_THAT(fault(folder / "absent"),
              AllOf(HasSubstr("absent': No such file or directory"), EndsWith("; fetch it")));
  EXPECT_THAT(fault(folder.path().string()), HasSubstr("it is a folder, not a file"));
  write_file(folder / "empty", "");
  EXPECT_THAT(fault(folder / "empty"), HasSubstr("it is empty"));
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(fault(folder / "pipe"), HasSubstr("not a regular file"));
}

// FIPS 180-2, appendix B, and the digest of no bytes.
TEST(Sha256, MatchesThePublishedVectors) {
  EXPECT_EQ(sha256_hex("abc", 3),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const std::string two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  EXPECT_EQ(sha256_hex(two_blocks.data(), two_blocks.size()),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(nullptr, 0),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

}  // namespace
}  // namespace memfloor

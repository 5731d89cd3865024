// A file appears whole or not at all, and every refusal says why.
#include "core/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "core/error.h"
#include "tests/temporary_folder.h"

namespace memfloor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(AtomicFile, AppearsAtCommit) {
  const TemporaryFolder folder;
  const std::string path = folder / "result.json";
  AtomicFile file(path);
  file.write("{\"a\"");
  file.write(": 1}\n", 5);
  EXPECT_EQ(file.bytes(), 9);
  EXPECT_FALSE(std::filesystem::exists(path));
  file.commit();
  EXPECT_EQ(read_file(path), "{\"a\": 1}\n");
  EXPECT_EQ(folder.entries(), 1);
  EXPECT_THROW(file.write("late"), Error);
  EXPECT_THROW(file.commit(), Error);
}

TEST(AtomicFile, WithoutCommitTheOldFileStays) {
  const TemporaryFolder folder;
  const std::string path = folder / "weights";
  write_file(path, "old");
  {
    AtomicFile file(path);
    file.write("new, but interrupted");
    EXPECT_EQ(folder.entries(), 2);
  }
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(AtomicFile, ReplacesTheOldFile) {
  const TemporaryFolder folder;
  const std::string path = folder / "weights";
  write_file(path, "old and long");
  AtomicFile file(path);
  file.write("new");
  file.commit();
  EXPECT_EQ(read_file(path), "new");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(AtomicFile, TwoWritersDoNotMix) {
  const TemporaryFolder folder;
  const std::string path = folder / "shared";
  AtomicFile first(path), second(path);
  first.write("first");
  second.write("second");
  second.commit();
  first.commit();
  EXPECT_EQ(read_file(path), "first");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(AtomicFile, AFolderIsClearedOfWhatKilledWritersLeft) {
  const TemporaryFolder folder;
  AtomicFile living(folder / "a.json");
  for (const char* name : {"b.json.4000000.0.tmp", "c.4000000.12.tmp"})
    write_file(folder / name, "half");
  for (const char* name : {"a.tmp", "a.1.tmp", "a.1.x.tmp", ".1.2.tmp", "a.1.2.tmp.json"})
    write_file(folder / name, "of somebody else");
  remove_abandoned_temporaries(folder.path().string());
  EXPECT_EQ(folder.entries(), 1 + 5);
  living.commit();
  EXPECT_EQ(read_file(folder / "a.json"), "");
}

TEST(AtomicFile, FollowsASymbolicLink) {
  const TemporaryFolder folder;
  const std::string real = folder / "real", link = folder / "link";
  write_file(real, "old");
  std::filesystem::create_symlink(real, link);
  AtomicFile file(link);
  file.write("new");
  file.commit();
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(read_file(real), "new");
}

TEST(AtomicFile, HonoursTheUmask) {
  const TemporaryFolder folder;
  const std::string path = folder / "result.json";
  const mode_t before = umask(027);
  AtomicFile file(path);
  umask(before);
  file.commit();
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
}

TEST(AtomicFile, RefusesAMissingFolder) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of<InputError>([&] { AtomicFile file(folder / "absent/result.json"); }),
              AllOf(HasSubstr("absent/result.json': No such file or directory"),
                    HasSubstr("create the folder"), HasSubstr("absent' first")));
}

TEST(AtomicFile, RefusesAFolderAndADevice) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of<InputError>([&] { AtomicFile file(folder.path().string()); }),
              HasSubstr("it is a folder"));
  EXPECT_THAT(error_of<InputError>([&] { AtomicFile file("/dev/null"); }),
              HasSubstr("not a regular file"));
}

TEST(AtomicFile, RefusesAFolderItMayNotWrite) {
  const TemporaryFolder folder;
  std::filesystem::permissions(
      folder.path(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  // Root may write anywhere, so be nobody for a moment.
  const uid_t user = geteuid();
  constexpr uid_t kNobody = 65534;
  ASSERT_EQ(seteuid(user == 0 ? kNobody : user), 0);
  const std::string message =
      error_of<InputError>([&] { AtomicFile file(folder / "result.json"); });
  ASSERT_EQ(seteuid(user), 0);
  std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_all);
  EXPECT_THAT(message, AllOf(HasSubstr("Permission denied"), HasSubstr("check the folder")));
}

// A limit on file sizes stands in for a full disk.
TEST(AtomicFile, AFailingWriteLeavesTheOldFileAndNoTemporary) {
  const TemporaryFolder folder;
  const std::string path = folder / "weights";
  write_file(path, "old");
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = error_of<Error>([&] {
    AtomicFile file(path);
    for (int i = 0; i < 11; ++i) file.write(std::string(100, 'x'));
    file.commit();
  });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, AllOf(HasSubstr("cannot write"), HasSubstr("weights' after 1000 bytes"),
                             HasSubstr("File too large")));
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(folder.entries(), 1);
}

}  // namespace
}  // namespace memfloor

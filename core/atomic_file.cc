#include "core/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace memfloor {

namespace fs = std::filesystem;

namespace {

constexpr const char* kSuffix = ".tmp";

std::string folder_of(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// "TARGET.PID.COUNTER.tmp"; of any target, where `target` is empty.
bool is_temporary(std::string_view name, std::string_view target) {
  if (!name.ends_with(kSuffix)) return false;
  name.remove_suffix(std::strlen(kSuffix));
  for (int number = 0; number < 2; ++number) {
    const std::size_t digits = name.find_last_not_of("0123456789") + 1;
    if (digits == name.size() || digits < 2 || name[digits - 1] != '.') return false;
    name = name.substr(0, digits - 1);
  }
  return target.empty() || name == target;
}

// Those whose writer was killed: a living one holds a lock.
void remove_abandoned(const std::string& folder, std::string_view target) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!is_temporary(entry->path().filename().string(), target)) continue;
    const int file = open(entry->path().c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (file < 0) continue;
    if (flock(file, LOCK_EX | LOCK_NB) == 0) unlink(entry->path().c_str());
    close(file);
  }
}

}  // namespace

void remove_abandoned_temporaries(const std::string& folder) { remove_abandoned(folder, {}); }

AtomicFile::AtomicFile(const std::string& path) : path_(path) {
  std::error_code ignored;
  const fs::file_status target = fs::status(path, ignored);
  if (fs::is_directory(target))
    throw InputError(concat("cannot write '", path, "': it is a folder; name a file in it"));
  // Renaming over /dev/null would replace it.
  if (fs::exists(target) && !fs::is_regular_file(target))
    throw InputError(concat("cannot write '", path, "': it is not a regular file"));
  if (fs::exists(target)) path_ = fs::canonical(path, ignored).string();

  // Not mkstemp: it would make the file private, and the umask cannot be read without setting it.
  static std::atomic<unsigned> counter = 0;
  for (bool again = true; again;) {
    temporary_ = concat(path_, '.', getpid(), '.', counter++, kSuffix);
    file_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    again = file_ < 0 && errno == EEXIST;
    if (file_ < 0) continue;
    // Between open() and flock() another writer may have taken it for abandoned.
    struct stat status {};
    flock(file_, LOCK_EX);
    again = fstat(file_, &status) == 0 && status.st_nlink == 0;
    if (again) close(std::exchange(file_, -1));
  }
  if (file_ < 0) {
    const int error = errno;
    throw InputError(concat("cannot write '", path, "': ", std::strerror(error), "; ",
                            error == ENOENT ? "create" : "check", " the folder '", folder_of(path),
                            "'", error == ENOENT ? " first" : ""));
  }
  remove_abandoned(folder_of(path_), fs::path(path_).filename().string());
}

AtomicFile::~AtomicFile() {
  if (file_ >= 0) close(file_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void AtomicFile::fail(const char* action, int error) const {
  const bool full = error == ENOSPC || error == EDQUOT;
  throw Error(concat("cannot ", action, " '", path_, "' after ", bytes_,
                     " bytes: ", std::strerror(error),
                     full ? "; free some space or choose another folder" : ""));
}

void AtomicFile::write(const void* data, std::int64_t bytes) {
  MEMFLOOR_CHECK(file_ >= 0, "'", path_, "' is written after its commit");
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(file_, next, static_cast<std::size_t>(bytes));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write", errno);
    next += written, bytes -= written, bytes_ += written;
  }
}

void AtomicFile::commit() {
  MEMFLOOR_CHECK(file_ >= 0, "'", path_, "' is committed twice");
  if (fsync(file_) != 0) fail("write", errno);
  // Network file systems may report a full disk only here.
  if (close(std::exchange(file_, -1)) != 0) fail("write", errno);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0)
    fail("rename the finished file to", errno);
  temporary_.clear();
  // Makes the new name survive a power cut; the file itself is complete whatever this returns.
  if (const int folder = open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
      folder >= 0) {
    fsync(folder);
    close(folder);
  }
}

}  // namespace memfloor

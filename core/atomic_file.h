// Writes a file so that a reader, a crash or a full disk never sees half of it: the bytes go to a
// temporary beside the target, which commit() renames over it. Without commit(), the destructor
// removes the temporary and whatever was at the target stays untouched.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace memfloor {

class AtomicFile {
 public:
  /// Throws InputError when the folder is missing or not writable, or `path` is a folder or device.
  explicit AtomicFile(const std::string& path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  /// Appends; every call is a system call, so give it large pieces. Throws Error when the disk is
  /// full or the write fails otherwise.
  void write(const void* data, std::int64_t bytes);
  void write(std::string_view text) { write(text.data(), static_cast<std::int64_t>(text.size())); }

  /// Bytes written so far.
  std::int64_t bytes() const { return bytes_; }

  /// Brings the bytes to the disk, then the file to its name. Throws Error when either fails.
  void commit();

 private:
  [[noreturn]] void fail(const char* action, int error) const;

  std::string path_;  // of the target, symbolic links followed
  std::string temporary_;
  int file_ = -1;
  std::int64_t bytes_ = 0;
};

/// Clears a folder of the temporaries of writers that were killed; those of living ones stay.
void remove_abandoned_temporaries(const std::string& folder);

}  // namespace memfloor

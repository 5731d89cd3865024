// A file's bytes, mapped read-only: the system pages them in as they are read and drops them when
// memory is short, so a data set costs the run no memory of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace memfloor {

class MappedFile {
 public:
  /// Throws InputError when `path` is missing, not a regular file, unreadable or empty; `advice`
  /// ends the sentence: what the user should do about it.
  explicit MappedFile(const std::string& path, std::string_view advice = "check the path");
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::uint8_t* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::uint8_t* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace memfloor

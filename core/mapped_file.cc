#include "core/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace memfloor {

MappedFile::MappedFile(const std::string& path, std::string_view advice) : path_(path) {
  const auto refuse = [&](const char* reason) {
    throw InputError(concat("cannot read '", path, "': ", reason, "; ", advice));
  };
  // O_NONBLOCK: opening a pipe must not wait for a writer before it is refused below.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) refuse(std::strerror(errno));
  struct stat status {};
  const char* fault = nullptr;
  if (fstat(file, &status) != 0) {
    fault = std::strerror(errno);
  } else if (!S_ISREG(status.st_mode)) {
    fault = S_ISDIR(status.st_mode) ? "it is a folder, not a file" : "it is not a regular file";
  } else if (status.st_size == 0) {
    fault = "it is empty";
  } else {
    void* mapping =
        mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_SHARED, file, 0);
    if (mapping == MAP_FAILED) {
      fault = std::strerror(errno);
    } else {
      data_ = static_cast<const std::uint8_t*>(mapping);
      bytes_ = status.st_size;
    }
  }
  close(file);  // the mapping stays
  if (fault) refuse(fault);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_) munmap(const_cast<std::uint8_t*>(data_), static_cast<std::size_t>(bytes_));
}

}  // namespace memfloor

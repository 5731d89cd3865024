// Safetensors files: named tensors as an 8-byte length, a JSON header and the raw bytes
// (https://github.com/huggingface/safetensors#format). Weights, test data and PyTorch dumps use it.
//
// Reading maps the file and copies nothing; every number of the header is checked against the file
// before it is believed. Writing streams: no tensor is ever held in a second copy.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/mapped_file.h"

namespace memfloor {

/// Element types a file may hold.
// clang-format off
enum class StoredType : std::uint8_t {
  f64, f32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8, boolean
};
// clang-format on
std::int64_t size_of(StoredType type);
/// "F64", "F32", ..., "U8", "BOOL", as in the header.
const char* name_of(StoredType type);
StoredType stored_type_of(Dtype dtype);

/// A tensor inside a mapped file, outermost axis first.
struct TensorView {
  StoredType type = StoredType::f32;
  std::vector<std::int64_t> shape;
  const void* data = nullptr;  // aligned only as the file's writer saw fit: memcpy, don't cast
  std::int64_t bytes = 0;

  std::int64_t elements() const { return bytes / size_of(type); }
  /// Writes elements() values of a floating-point tensor, rounded to nearest where it is F64.
  /// Throws InputError for other types.
  void copy_to(float* values) const;
};

class SafetensorsFile {
 public:
  /// Throws InputError, naming the file and the tensor, for anything but a sound file: a header
  /// that is too long, not JSON or has a name twice; a type, shape or offset that is none; tensors
  /// that overlap, leave a gap or do not match their shape.
  static SafetensorsFile open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  /// Sorted.
  std::vector<std::string> names() const;
  /// Null where the file has no such tensor.
  const TensorView* find(std::string_view name) const;
  /// Throws InputError where the file has no such tensor.
  const TensorView& get(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  explicit SafetensorsFile(MappedFile file) : file_(std::move(file)) {}

  MappedFile file_;
  std::map<std::string, TensorView, std::less<>> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// Collects what a file shall hold, then writes it in one go. Equal contents give equal bytes.
class SafetensorsWriter {
 public:
  /// Appends bytes to the tensor being written.
  using Put = std::function<void(const void* data, std::int64_t bytes)>;
  /// Puts a tensor's bytes, in order, in as many pieces as it likes.
  using Produce = std::function<void(const Put& put)>;

  /// `data` must stay valid until write().
  void add(const std::string& name, StoredType type, std::vector<std::int64_t> shape,
           const void* data);
  /// For values that lie nowhere as a whole: `produce` is called by write().
  void add(const std::string& name, StoredType type, std::vector<std::int64_t> shape,
           Produce produce);
  void set_metadata(const std::string& key, const std::string& value) { metadata_[key] = value; }

  /// Writes atomically (see atomic_file.h) and throws as AtomicFile does.
  void write(const std::string& path) const;

 private:
  struct Entry {
    std::string name;
    StoredType type;
    std::vector<std::int64_t> shape;
    std::int64_t bytes;
    Produce produce;
  };
  std::vector<Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace memfloor

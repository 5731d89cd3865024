#include "core/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "core/atomic_file.h"
#include "core/error.h"

namespace memfloor {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

namespace {

using nlohmann::json;

constexpr std::int64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation
constexpr const char* kMetadata = "__metadata__";

struct TypeInfo {
  const char* name;
  std::int64_t bytes;
};
constexpr TypeInfo kTypes[] = {{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},
                               {"I32", 4}, {"I16", 2}, {"I8", 1},  {"U64", 8},  {"U32", 4},
                               {"U16", 2}, {"U8", 1},  {"BOOL", 1}};

std::optional<StoredType> type_named(const std::string& name) {
  for (std::size_t i = 0; i < std::size(kTypes); ++i)
    if (name == kTypes[i].name) return static_cast<StoredType>(i);
  return std::nullopt;
}

/// Bytes of a tensor, or nothing where they do not fit 63 bits.
std::optional<std::int64_t> bytes_of(const std::vector<std::int64_t>& shape, StoredType type) {
  std::int64_t bytes = size_of(type);
  for (std::int64_t extent : shape)
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  return bytes;
}

/// A name or value from the file, fit for a message: short, and control characters escaped.
std::string quoted(const std::string& text) {
  constexpr std::size_t kShown = 80;
  const std::string shown = text.size() <= kShown ? text : text.substr(0, kShown) + "...";
  return json(shown).dump(-1, ' ', true, json::error_handler_t::replace);
}

[[noreturn]] void refuse(const std::string& path, const std::string& fault) {
  throw InputError(concat("'", path, "' is damaged or no safetensors file: ", fault,
                          "; write or fetch it again"));
}

/// The header as JSON, at most three levels deep and with no name twice in an object.
json parse_header(const std::string& path, const char* begin, const char* end) {
  if (*begin != '{') refuse(path, "its header does not begin with '{'");
  std::set<std::string> names[2];  // seen so far in the current object of each level
  const auto check = [&](int depth, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start || event == json::parse_event_t::array_start) {
      if (depth > 2) refuse(path, "its header is nested too deeply");
      if (depth < 2) names[depth].clear();
    } else if (event == json::parse_event_t::key) {
      // A key's depth is one more than its object's.
      if (depth > 2) refuse(path, "its header is nested too deeply");
      const auto& name = value.get_ref<const std::string&>();
      if (!names[depth - 1].insert(name).second)
        refuse(path, concat("its header has ", quoted(name), " twice"));
    }
    return true;
  };
  try {
    return json::parse(begin, end, check);
  } catch (const json::parse_error& e) {
    refuse(path, concat("its header is not JSON at byte ", e.byte));
  } catch (const json::exception&) {
    refuse(path, "its header has a number out of range");
  }
}

/// A non-negative whole number, or nothing.
std::optional<std::int64_t> whole_number(const json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const auto number = value.get<std::uint64_t>();
  if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    return std::nullopt;
  return static_cast<std::int64_t>(number);
}

/// A list of non-negative whole numbers, or nothing.
std::optional<std::vector<std::int64_t>> whole_numbers(const json& list) {
  if (!list.is_array()) return std::nullopt;
  std::vector<std::int64_t> numbers;
  for (const json& item : list) {
    const auto number = whole_number(item);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

struct Located {
  TensorView view;
  std::int64_t begin, end;  // in the data section
};

/// One entry of the header, checked against the data section's size.
Located parse_entry(const std::string& path, const std::string& name, const json& entry,
                    std::int64_t data_bytes) {
  const auto fail = [&](const auto&... fault) {
    refuse(path, concat("tensor ", quoted(name), " ", fault...));
  };
  if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") ||
      !entry.contains("shape") || !entry.contains("data_offsets"))
    fail("is not described by exactly dtype, shape and data_offsets");

  const json& dtype = entry["dtype"];
  const auto type = dtype.is_string() ? type_named(dtype.get<std::string>()) : std::nullopt;
  if (!type) fail("has an unknown dtype: ", quoted(dtype.dump()));
  auto shape = whole_numbers(entry["shape"]);
  if (!shape) fail("has a shape that is no list of sizes");
  const auto bytes = bytes_of(*shape, *type);
  if (!bytes) fail("has a shape too large for any file");
  const auto offsets = whole_numbers(entry["data_offsets"]);
  if (!offsets || offsets->size() != 2) fail("has data_offsets that are no pair of offsets");
  const std::int64_t begin = (*offsets)[0], end = (*offsets)[1];
  if (begin > end || end > data_bytes)
    fail("lies at bytes ", begin, " to ", end, " of ", data_bytes);
  if (end - begin != *bytes)
    fail("has ", end - begin, " bytes where its shape and dtype need ", *bytes);
  return {{*type, std::move(*shape), nullptr, *bytes}, begin, end};
}

}  // namespace

std::int64_t size_of(StoredType type) { return kTypes[static_cast<int>(type)].bytes; }
const char* name_of(StoredType type) { return kTypes[static_cast<int>(type)].name; }

StoredType stored_type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f16:
      return StoredType::f16;
    case Dtype::bf16:
      return StoredType::bf16;
    default:
      return StoredType::f32;
  }
}

void TensorView::copy_to(float* values) const {
  const auto convert = [&](auto element) {
    const char* source = static_cast<const char*>(data);
    for (std::int64_t i = 0; i < elements(); ++i) {
      std::memcpy(&element, source + i * sizeof element, sizeof element);
      values[i] = static_cast<float>(element);
    }
  };
  switch (type) {
    case StoredType::f64:
      return convert(double{});
    case StoredType::f32:
      return convert(float{});
    case StoredType::f16:
      return convert(F16{});
    case StoredType::bf16:
      return convert(Bf16{});
    default:
      throw InputError(concat("a tensor of ", name_of(type), " is read as floating-point numbers"));
  }
}

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  SafetensorsFile result{MappedFile(path, "check the path, or write the file again")};
  const MappedFile& file = result.file_;
  if (file.bytes() < kLengthBytes) refuse(path, "it is shorter than 8 bytes");
  std::uint64_t header_bytes;
  std::memcpy(&header_bytes, file.data(), kLengthBytes);
  if (header_bytes > kMaxHeaderBytes)
    refuse(path, concat("its header claims ", header_bytes, " bytes, and 100 MB is the limit"));
  const std::int64_t data_start = kLengthBytes + static_cast<std::int64_t>(header_bytes);
  if (header_bytes == 0 || data_start > file.bytes())
    refuse(path, concat("its header claims ", header_bytes, " bytes in a file of ", file.bytes()));
  const char* header = reinterpret_cast<const char*>(file.data()) + kLengthBytes;
  const json entries = parse_header(path, header, header + header_bytes);

  const std::int64_t data_bytes = file.bytes() - data_start;
  struct Range {
    std::int64_t begin, end;
    const std::string* name;
  };
  std::vector<Range> ranges;
  for (const auto& [name, entry] : entries.items()) {
    if (name == kMetadata) {
      if (!entry.is_object()) refuse(path, "its __metadata__ is no object");
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string())
          refuse(path, concat("its __metadata__ ", quoted(key), " is no string"));
        result.metadata_[key] = value.get<std::string>();
      }
      continue;
    }
    Located located = parse_entry(path, name, entry, data_bytes);
    located.view.data = file.data() + data_start + located.begin;
    const auto added = result.tensors_.emplace(name, std::move(located.view)).first;
    ranges.push_back({located.begin, located.end, &added->first});
  }

  // The tensors must tile the data section: every byte is somebody's, and nobody else's.
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::int64_t expected = 0;
  for (const Range& range : ranges) {
    if (range.begin != expected)
      refuse(path, concat("tensor ", quoted(*range.name), " begins at byte ", range.begin,
                          range.begin < expected ? ", inside the tensor before it, which ends at "
                                                 : ", after a gap from ",
                          expected));
    expected = range.end;
  }
  if (expected != data_bytes)
    refuse(path, concat("its tensors end at byte ", expected, " of ", data_bytes));
  return result;
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, view] : tensors_) names.push_back(name);
  return names;
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

const TensorView& SafetensorsFile::get(std::string_view name) const {
  if (const TensorView* view = find(name)) return *view;
  throw InputError(concat("'", path(), "' has no tensor '", name, "' among its ", tensors_.size(),
                          "; check that it is the file meant"));
}

void SafetensorsWriter::add(const std::string& name, StoredType type,
                            std::vector<std::int64_t> shape, const void* data) {
  const auto bytes = bytes_of(shape, type).value_or(0);  // the other add() refuses such a shape
  add(name, type, std::move(shape), [=](const Put& put) { put(data, bytes); });
}

void SafetensorsWriter::add(const std::string& name, StoredType type,
                            std::vector<std::int64_t> shape, Produce produce) {
  const auto bytes = bytes_of(shape, type);
  MEMFLOOR_CHECK(bytes, "tensor '", name, "' has no valid shape");
  MEMFLOOR_CHECK(name != kMetadata, "a tensor may not be called ", kMetadata);
  entries_.push_back({name, type, std::move(shape), *bytes, std::move(produce)});
}

void SafetensorsWriter::write(const std::string& path) const {
  // Wide types first, so that in a header padded to 8 bytes every tensor is aligned; then by name.
  std::vector<const Entry*> order;
  for (const Entry& entry : entries_) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) {
    return std::pair(-size_of(a->type), a->name) < std::pair(-size_of(b->type), b->name);
  });

  json header = json::object();
  if (!metadata_.empty()) header[kMetadata] = metadata_;
  std::int64_t offset = 0;
  for (const Entry* entry : order) {
    MEMFLOOR_CHECK(!header.contains(entry->name), "tensor '", entry->name, "' is added twice");
    header[entry->name] = {{"dtype", name_of(entry->type)},
                           {"shape", entry->shape},
                           {"data_offsets", {offset, offset + entry->bytes}}};
    offset += entry->bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  MEMFLOOR_CHECK(text.size() <= kMaxHeaderBytes, "the header of '", path, "' is too long");

  AtomicFile file(path);
  const std::uint64_t length = text.size();
  file.write(&length, kLengthBytes);
  file.write(text);
  for (const Entry* entry : order) {
    const std::int64_t begin = file.bytes();
    entry->produce([&](const void* data, std::int64_t bytes) { file.write(data, bytes); });
    MEMFLOOR_CHECK(file.bytes() - begin == entry->bytes, "tensor '", entry->name, "' needs ",
                   entry->bytes, " bytes and got ", file.bytes() - begin);
  }
  file.commit();
}

}  // namespace memfloor

// CIFAR-10 (Krizhevsky, "Learning multiple layers of features from tiny images", 2009) in its
// official binary layout: a record is one label byte, then the red, green and blue planes of 32x32
// bytes each, row by row; a file is 10000 records and nothing else.
#include <array>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/error.h"
#include "core/mapped_file.h"
#include "core/sha256.h"
#include "data_loaders/image_dataset.h"

namespace memfloor {
namespace {

constexpr ImageFormat kFormat{32, 32, 3, 10};
constexpr std::int64_t kPixels = 32 * 32;
constexpr std::int64_t kRecordBytes = 1 + 3 * kPixels;
constexpr std::int64_t kRecordsPerFile = 10000;
constexpr int kTrainFiles = 5;
constexpr std::array kFileNames = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                   "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};
constexpr const char* kAdvice = "fetch it again with scripts/fetch_data cifar10";

class Cifar10 final : public ImageDataset {
 public:
  explicit Cifar10(const std::filesystem::path& folder) {
    for (const char* name : kFileNames) {
      files_.emplace_back((folder / name).string(), kAdvice);
      check(files_.back());
    }
  }

  ImageFormat format() const override { return kFormat; }

  std::int64_t size(Split split) const override {
    MEMFLOOR_CHECK(split != Split::valid, "CIFAR-10 has no validation images");
    return split == Split::train ? kTrainFiles * kRecordsPerFile : kRecordsPerFile;
  }

  void read_image(Split split, std::int64_t index, std::uint8_t* image) const override {
    const std::uint8_t* red = record(split, index) + 1;
    const std::uint8_t* green = red + kPixels;
    const std::uint8_t* blue = green + kPixels;
    for (std::int64_t i = 0; i < kPixels; ++i) {
      image[3 * i] = red[i];
      image[3 * i + 1] = green[i];
      image[3 * i + 2] = blue[i];
    }
  }

  int label(Split split, std::int64_t index) const override { return record(split, index)[0]; }

  // Hashing 184 MB takes about half a second, so it waits until somebody asks.
  nlohmann::json provenance() const override {
    std::call_once(hashed_, [this] {
      for (std::size_t i = 0; i < files_.size(); ++i)
        sha256_[kFileNames[i]] =
            sha256_hex(files_[i].data(), static_cast<std::size_t>(files_[i].bytes()));
    });
    return {{"name", "cifar10"}, {"sha256", sha256_}};
  }

 private:
  static void check(const MappedFile& file) {
    constexpr std::int64_t kFileBytes = kRecordsPerFile * kRecordBytes;
    if (file.bytes() != kFileBytes)
      throw InputError(concat("'", file.path(), "' is ",
                              file.bytes() < kFileBytes ? "truncated" : "too long", ": ",
                              file.bytes(), " bytes instead of ", kFileBytes, "; ", kAdvice));
    for (std::int64_t i = 0; i < kRecordsPerFile; ++i)
      if (const int label = file.data()[i * kRecordBytes]; label >= kFormat.classes)
        throw InputError(concat("'", file.path(), "' has label ", label, " in record ", i,
                                ", and 9 is the largest; ", kAdvice));
  }

  const std::uint8_t* record(Split split, std::int64_t index) const {
    MEMFLOOR_CHECK(index >= 0 && index < size(split), "there is no image ", index);
    const std::int64_t file = split == Split::train ? index / kRecordsPerFile : kTrainFiles;
    return files_[static_cast<std::size_t>(file)].data() + index % kRecordsPerFile * kRecordBytes;
  }

  std::vector<MappedFile> files_;  // as kFileNames
  mutable std::once_flag hashed_;
  mutable nlohmann::json sha256_;  // by file name
};

}  // namespace

std::unique_ptr<ImageDataset> open_cifar10(const std::string& directory) {
  const std::filesystem::path folder = directory;
  const std::filesystem::path child = folder / "cifar-10-batches-bin";
  if (std::filesystem::is_directory(child)) return std::make_unique<Cifar10>(child);
  return std::make_unique<Cifar10>(folder);
}

}  // namespace memfloor

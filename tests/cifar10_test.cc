// The official binary files: byte order, and a clear refusal of anything else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/error.h"
#include "data_loaders/image_dataset.h"
#include "tests/temporary_folder.h"

namespace memfloor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::int64_t kPlane = 32 * 32, kRecordBytes = 1 + 3 * kPlane, kRecords = 10000;
constexpr std::array kNames = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                               "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};

/// A byte that tells where it came from; plane -1 is the label.
int byte_at(int file, std::int64_t record, int plane, int y, int x) {
  if (plane < 0) return static_cast<int>((file + record) % 10);
  return static_cast<int>((file * 7 + record * 13 + plane * 101 + y * 5 + x * 3) % 251);
}

/// A folder with six well-formed files; each test damages one.
class Cifar10 : public testing::Test {
 protected:
  Cifar10() {
    std::string bytes(kRecords * kRecordBytes, '\0');
    for (int file = 0; file < 6; ++file) {
      // Whole records only where the tests look; elsewhere a label is enough.
      for (std::int64_t record = 0; record < kRecords; ++record) {
        char* next = &bytes[record * kRecordBytes];
        *next++ = static_cast<char>(byte_at(file, record, -1, 0, 0));
        if (record % 1111 != 0) continue;
        for (int plane = 0; plane < 3; ++plane)
          for (int y = 0; y < 32; ++y)
            for (int x = 0; x < 32; ++x)
              *next++ = static_cast<char>(byte_at(file, record, plane, y, x));
      }
      write_file(folder_ / kNames[file], bytes);
    }
  }

  std::string fault() const {
    return error_of<InputError>([&] { open_cifar10(folder_.path().string()); });
  }

  TemporaryFolder folder_;
};

TEST_F(Cifar10, InterleavesThePlanesOfTheRightRecord) {
  const auto data = open_cifar10(folder_.path().string());
  EXPECT_EQ(data->size(Split::train), 50000);
  EXPECT_EQ(data->size(Split::test), 10000);
  EXPECT_EQ(data->format().bytes(), 3072);
  EXPECT_EQ(data->format().classes, 10);
  std::vector<std::uint8_t> image(3072);
  for (int file = 0; file < 6; ++file)
    for (std::int64_t record = 0; record < kRecords; record += 1111) {
      const Split split = file < 5 ? Split::train : Split::test;
      const std::int64_t index = file < 5 ? file * kRecords + record : record;
      ASSERT_EQ(data->label(split, index), byte_at(file, record, -1, 0, 0));
      data->read_image(split, index, image.data());
      for (int y = 0; y < 32; ++y)
        for (int x = 0; x < 32; ++x)
          for (int c = 0; c < 3; ++c)
            ASSERT_EQ(image[(y * 32 + x) * 3 + c], byte_at(file, record, c, y, x))
                << "file " << file << " record " << record << " at " << y << ", " << x;
    }
  EXPECT_THROW(data->label(Split::train, 50000), Error);
  EXPECT_THROW(data->read_image(Split::test, 10000, image.data()), Error);
  EXPECT_THROW(data->label(Split::test, -1), Error);
}

TEST_F(Cifar10, IsFoundInItsArchivesFolder) {
  const std::filesystem::path child = folder_.path() / "cifar-10-batches-bin";
  std::filesystem::create_directory(child);
  for (const char* name : kNames) std::filesystem::rename(folder_ / name, child / name);
  EXPECT_EQ(fault(), "");
  EXPECT_EQ(open_cifar10(child.string())->size(Split::test), 10000);
}

TEST_F(Cifar10, ATruncatedFileIsRefused) {
  std::filesystem::resize_file(folder_ / "data_batch_3.bin", kRecords * kRecordBytes - 1);
  EXPECT_THAT(fault(), AllOf(HasSubstr("data_batch_3.bin' is truncated: 30729999 bytes instead of "
                                       "30730000"),
                             HasSubstr("fetch it again with scripts/fetch_data cifar10")));
}

TEST_F(Cifar10, AFileOneByteTooLongIsRefused) {
  std::filesystem::resize_file(folder_ / "test_batch.bin", kRecords * kRecordBytes + 1);
  EXPECT_THAT(fault(), HasSubstr("test_batch.bin' is too long: 30730001 bytes"));
}

TEST_F(Cifar10, AMissingFileIsNamed) {
  std::filesystem::remove(folder_ / "data_batch_5.bin");
  EXPECT_THAT(fault(), AllOf(HasSubstr("data_batch_5.bin': No such file"),
                             HasSubstr("scripts/fetch_data cifar10")));
}

TEST_F(Cifar10, ALabelAboveNineIsRefused) {
  for (const char label : {'\xc8', '\x0a'}) {  // 200 and 10
    std::fstream file(folder_ / "data_batch_2.bin",
                      std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(1234 * kRecordBytes);
    file.put(label);
    file.close();
    EXPECT_THAT(fault(),
                AllOf(HasSubstr("data_batch_2.bin"), HasSubstr("in record 1234"),
                      HasSubstr(concat("has label ", int{static_cast<std::uint8_t>(label)}))));
  }
}

// ---- the real files ----------------------------------------------------------------------------

/// Null, with the test skipped, where there are none.
std::unique_ptr<ImageDataset> real_data() {
  const char* folder = std::getenv("MEMFLOOR_TEST_DATA_DIR");
  if (!folder) return nullptr;
  if (!std::filesystem::is_directory(std::filesystem::path(folder) / "cifar-10-batches-bin"))
    return nullptr;
  return open_cifar10(folder);
}
constexpr const char* kNoData =
    "set MEMFLOOR_TEST_DATA_DIR to the folder that holds cifar-10-batches-bin/";

TEST(Cifar10Official, FilesHaveTheirSha256) {
  const auto data = real_data();
  if (!data) GTEST_SKIP() << kNoData;
  const std::map<std::string, std::string> official = {
      {"data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"},
      {"data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"},
      {"data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"},
      {"data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"},
      {"data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"},
      {"test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"}};
  const nlohmann::json provenance = data->provenance();
  EXPECT_EQ(provenance["name"], "cifar10");
  EXPECT_EQ(provenance["sha256"], nlohmann::json(official));
}

TEST(Cifar10Official, ClassesAreBalanced) {
  const auto data = real_data();
  if (!data) GTEST_SKIP() << kNoData;
  for (const Split split : {Split::train, Split::test}) {
    std::array<std::int64_t, 10> count{};
    for (std::int64_t i = 0; i < data->size(split); ++i) ++count[data->label(split, i)];
    for (std::int64_t n : count) EXPECT_EQ(n, data->size(split) / 10);
  }
}

// Pitfall 18: the planes are red, green, blue, and the mean of all training pixels, scaled to
// [0, 1], is the well-known 0.4914, 0.4822, 0.4465.
TEST(Cifar10Official, ChannelMeansAreTheKnownOnes) {
  const auto data = real_data();
  if (!data) GTEST_SKIP() << kNoData;
  std::array<std::int64_t, 3> sum{};
  std::vector<std::uint8_t> image(3072);
  for (std::int64_t i = 0; i < 50000; ++i) {
    data->read_image(Split::train, i, image.data());
    for (int p = 0; p < 3072; ++p) sum[p % 3] += image[p];
  }
  constexpr double kScale = 1.0 / (255.0 * 50000 * kPlane);
  EXPECT_NEAR(sum[0] * kScale, 0.4914, 5e-5);
  EXPECT_NEAR(sum[1] * kScale, 0.4822, 5e-5);
  EXPECT_NEAR(sum[2] * kScale, 0.4465, 5e-5);
}

}  // namespace
}  // namespace memfloor

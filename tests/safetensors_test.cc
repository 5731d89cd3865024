// What is written is read back, and no file, however damaged, is believed without proof.
#include "core/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/temporary_folder.h"

namespace memfloor {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// A file with this header and this many bytes of data.
std::string file_with(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data_bytes, '\1');
}

/// A sound file of several types and shapes.
void write_sample(const std::string& path) {
  static const float kWeights[6] = {1, -2, 3.5, 0, 1e-30f, INFINITY};
  static const Bf16 kBias[3] = {Bf16(1), Bf16(2), Bf16(-3)};
  static const std::uint8_t kMask[5] = {1, 0, 1, 1, 255};
  static const double kScalar = 0.1;
  SafetensorsWriter writer;
  writer.add("mask", StoredType::u8, {5}, kMask);
  writer.add("conv.weight", StoredType::f32, {2, 3}, kWeights);
  writer.add("conv.bias", StoredType::bf16, {3}, kBias);
  writer.add("scalar", StoredType::f64, {}, &kScalar);
  writer.add("nothing", StoredType::i64, {4, 0}, nullptr);
  writer.set_metadata("format", "pt");
  writer.set_metadata("note", "\"quoted\"\n");
  writer.write(path);
}

class Safetensors : public testing::Test {
 protected:
  /// The message that refuses these bytes, or "" where they are accepted.
  std::string fault(const std::string& bytes) const {
    write_file(path_, bytes);
    return error_of<InputError>([&] { SafetensorsFile::open(path_); });
  }
  std::string fault(const std::string& header, std::size_t data_bytes) const {
    return fault(file_with(header, data_bytes));
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "sample.safetensors";
};

// ---- round trip --------------------------------------------------------------------------------

TEST_F(Safetensors, ReadsBackWhatWasWritten) {
  write_sample(path_);
  const SafetensorsFile file = SafetensorsFile::open(path_);
  EXPECT_THAT(file.names(), ElementsAre("conv.bias", "conv.weight", "mask", "nothing", "scalar"));
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.metadata().at("note"), "\"quoted\"\n");

  const TensorView& weight = file.get("conv.weight");
  EXPECT_EQ(weight.type, StoredType::f32);
  EXPECT_THAT(weight.shape, ElementsAre(2, 3));
  std::vector<float> values(weight.elements());
  weight.copy_to(values.data());
  EXPECT_THAT(values, ElementsAre(1, -2, 3.5, 0, 1e-30f, INFINITY));

  std::vector<float> bias(3);
  file.get("conv.bias").copy_to(bias.data());
  EXPECT_THAT(bias, ElementsAre(1, 2, -3));

  float scalar;
  EXPECT_EQ(file.get("scalar").elements(), 1);
  file.get("scalar").copy_to(&scalar);
  EXPECT_EQ(scalar, 0.1f);

  const TensorView& mask = file.get("mask");
  EXPECT_EQ(std::memcmp(mask.data, "\1\0\1\1\377", 5), 0);
  EXPECT_THAT(error_of<InputError>([&] { mask.copy_to(values.data()); }), HasSubstr("U8"));
  EXPECT_EQ(file.get("nothing").bytes, 0);
  EXPECT_THAT(file.get("nothing").shape, ElementsAre(4, 0));
}

TEST_F(Safetensors, WritesOneLayoutAlignedAndDeterministic) {
  write_sample(path_);
  const std::string bytes = read_file(path_);
  write_sample(path_);
  EXPECT_EQ(read_file(path_), bytes);
  EXPECT_EQ(folder_.entries(), 1);

  std::uint64_t header;
  std::memcpy(&header, bytes.data(), 8);
  EXPECT_EQ(header % 8, 0u);
  EXPECT_EQ(bytes[8], '{');
  const SafetensorsFile file = SafetensorsFile::open(path_);
  for (const std::string& name : file.names()) {
    const TensorView& view = file.get(name);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.data) % size_of(view.type), 0u) << name;
  }
}

TEST_F(Safetensors, StreamsWhatACallbackProduces) {
  SafetensorsWriter writer;
  writer.add("ramp", StoredType::f32, {1000}, [](const SafetensorsWriter::Put& put) {
    for (int i = 0; i < 1000; i += 10) {
      float piece[10];
      std::iota(piece, piece + 10, static_cast<float>(i));
      put(piece, sizeof piece);
    }
  });
  writer.write(path_);
  std::vector<float> values(1000);
  SafetensorsFile::open(path_).get("ramp").copy_to(values.data());
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(values[i], i);
}

TEST_F(Safetensors, AFileWithoutTensorsIsSound) {
  SafetensorsWriter().write(path_);
  EXPECT_TRUE(SafetensorsFile::open(path_).names().empty());
}

TEST_F(Safetensors, WriterRefusesMistakesAndKeepsTheOldFile) {
  write_file(path_, "old");
  const float one = 1;
  SafetensorsWriter twice;
  twice.add("w", StoredType::f32, {1}, &one);
  twice.add("w", StoredType::f32, {1}, &one);
  EXPECT_THAT(error_of<Error>([&] { twice.write(path_); }), HasSubstr("'w' is added twice"));

  SafetensorsWriter wrong_size;
  wrong_size.add("w", StoredType::f32, {2},
                 [&](const SafetensorsWriter::Put& put) { put(&one, sizeof one); });
  EXPECT_THAT(error_of<Error>([&] { wrong_size.write(path_); }),
              HasSubstr("'w' needs 8 bytes and got 4"));

  SafetensorsWriter writer;
  EXPECT_THROW(writer.add("w", StoredType::f32, {-1}, &one), Error);
  EXPECT_THROW(writer.add("w", StoredType::f32, {1LL << 40, 1LL << 40}, &one), Error);
  EXPECT_THROW(writer.add("__metadata__", StoredType::f32, {1}, &one), Error);
  EXPECT_THAT(error_of<InputError>([&] { writer.write(folder_ / "absent/w"); }),
              HasSubstr("create the folder"));
  EXPECT_EQ(read_file(path_), "old");
  EXPECT_EQ(folder_.entries(), 1);
}

TEST_F(Safetensors, AMissingTensorIsNamed) {
  write_sample(path_);
  const SafetensorsFile file = SafetensorsFile::open(path_);
  EXPECT_EQ(file.find("fc.weight"), nullptr);
  EXPECT_NE(file.find("mask"), nullptr);
  EXPECT_THAT(error_of<InputError>([&] { file.get("fc.weight"); }),
              AllOf(HasSubstr(path_), HasSubstr("no tensor 'fc.weight'")));
}

// ---- damaged and hostile files -----------------------------------------------------------------

TEST_F(Safetensors, RefusesABadLength) {
  EXPECT_THAT(fault("1234567"), AllOf(HasSubstr(path_), HasSubstr("shorter than 8 bytes")));
  const auto claiming = [](std::uint64_t length) {
    std::string bytes = file_with("{}", 0);
    std::memcpy(bytes.data(), &length, 8);
    return bytes;
  };
  EXPECT_THAT(fault(claiming(std::uint64_t{1} << 60)), HasSubstr("100 MB is the limit"));
  EXPECT_THAT(fault(claiming(~std::uint64_t{0})), HasSubstr("100 MB is the limit"));
  EXPECT_THAT(fault(claiming(100'000'000)), HasSubstr("claims 100000000 bytes in a file of 10"));
  EXPECT_THAT(fault(claiming(3)), HasSubstr("claims 3 bytes in a file of 10"));
  EXPECT_THAT(fault(claiming(0)), HasSubstr("claims 0 bytes"));
  EXPECT_EQ(fault(claiming(2)), "");
}

TEST_F(Safetensors, RefusesAHeaderThatIsNoJsonObject) {
  EXPECT_THAT(fault("{\"w\":", 0), HasSubstr("not JSON"));
  EXPECT_THAT(fault("{} x", 0), HasSubstr("not JSON"));
  EXPECT_THAT(fault("{\"\xff\": 1}", 0), HasSubstr("not JSON"));
  EXPECT_THAT(fault("{\"w\": 1e999}", 0), HasSubstr("number out of range"));
  EXPECT_THAT(fault("[]", 0), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(fault(" {}", 0), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(fault("{\"w\":" + std::string(1 << 20, '['), 0), HasSubstr("nested too deeply"));
  std::string objects = "{\"w\":";
  for (int i = 0; i < 1000; ++i) objects += "{\"w\":";
  EXPECT_THAT(fault(objects, 0), HasSubstr("nested too deeply"));
}

TEST_F(Safetensors, RefusesANameTwice) {
  const std::string entry = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_THAT(fault("{\"w\":" + entry + ",\"w\":" + entry + "}", 1), HasSubstr("\"w\" twice"));
  EXPECT_THAT(fault(R"({"w":{"dtype":"U8","dtype":"F32","shape":[1],"data_offsets":[0,1]}})", 1),
              HasSubstr("\"dtype\" twice"));
  EXPECT_THAT(fault(R"({"__metadata__":{"a":"1","a":"2"}})", 0), HasSubstr("\"a\" twice"));
}

TEST_F(Safetensors, RefusesWrongTypes) {
  for (const char* entry : {
           "1",
           "[]",
           "null",
           "{}",
           R"({"dtype":"U8","shape":[1]})",
           R"({"dtype":"U8","shape":[1],"data_offsets":[0,1],"extra":1})",
           R"({"dtype":1,"shape":[1],"data_offsets":[0,1]})",
           R"({"dtype":"U9","shape":[1],"data_offsets":[0,1]})",
           R"({"dtype":"u8","shape":[1],"data_offsets":[0,1]})",
           R"({"dtype":"U8","shape":1,"data_offsets":[0,1]})",
           R"({"dtype":"U8","shape":{},"data_offsets":[0,1]})",
           R"({"dtype":"U8","shape":["1"],"data_offsets":[0,1]})",
           R"({"dtype":"U8","shape":[1.0],"data_offsets":[0,1]})",
           R"({"dtype":"U8","shape":[-1],"data_offsets":[0,1]})",
           R"({"dtype":"U8","shape":[true],"data_offsets":[0,1]})",
           R"({"dtype":"U8","shape":[1],"data_offsets":[0]})",
           R"({"dtype":"U8","shape":[1],"data_offsets":[0,1,1]})",
           R"({"dtype":"U8","shape":[1],"data_offsets":[-1,0]})",
           R"({"dtype":"U8","shape":[1],"data_offsets":[0,1.0]})",
           R"({"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551615]})",
           R"({"dtype":"U8","shape":[1],"data_offsets":[0,99999999999999999999]})",
       })
    EXPECT_THAT(fault("{\"some.tensor\":" + std::string(entry) + "}", 1),
                AllOf(HasSubstr(path_), HasSubstr("some.tensor")))
        << entry;
  EXPECT_THAT(fault(R"({"__metadata__":[]})", 0), HasSubstr("__metadata__ is no object"));
  EXPECT_THAT(fault(R"({"__metadata__":{"a":1}})", 0), HasSubstr("\"a\" is no string"));
}

TEST_F(Safetensors, RefusesSizesThatDoNotAddUp) {
  const auto one = [&](const char* shape, const char* offsets, std::size_t data_bytes) {
    return fault(
        concat(R"({"w":{"dtype":"F32","shape":)", shape, R"(,"data_offsets":)", offsets, "}}"),
        data_bytes);
  };
  EXPECT_EQ(one("[2]", "[0,8]", 8), "");
  EXPECT_THAT(one("[2]", "[0,7]", 7), HasSubstr("has 7 bytes where its shape and dtype need 8"));
  EXPECT_THAT(one("[2]", "[8,0]", 8), HasSubstr("lies at bytes 8 to 0"));
  EXPECT_THAT(one("[2]", "[0,8]", 7), HasSubstr("lies at bytes 0 to 8 of 7"));
  EXPECT_THAT(one("[2]", "[0,8]", 9), HasSubstr("end at byte 8 of 9"));
  EXPECT_THAT(one("[2]", "[1,9]", 9), HasSubstr("begins at byte 1, after a gap from 0"));
  // The products wrap to 0 and to 8 in 64 bits.
  EXPECT_THAT(one("[4294967296,4294967296]", "[0,0]", 0), HasSubstr("too large"));
  EXPECT_THAT(one("[4611686018427387906]", "[0,8]", 8), HasSubstr("too large"));
  EXPECT_THAT(one("[9223372036854775808]", "[0,8]", 8), HasSubstr("no list of sizes"));
}

TEST_F(Safetensors, RefusesOverlapsAndGaps) {
  const auto two = [&](const char* a, const char* b, std::size_t data_bytes) {
    return fault(concat(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)", a,
                        R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)", b, "}}"),
                 data_bytes);
  };
  EXPECT_EQ(two("[0,4]", "[4,8]", 8), "");
  EXPECT_EQ(two("[4,8]", "[0,4]", 8), "");
  EXPECT_THAT(two("[0,4]", "[0,4]", 8), HasSubstr("inside the tensor before it"));
  EXPECT_THAT(two("[0,4]", "[3,7]", 8), HasSubstr("\"b\" begins at byte 3, inside"));
  EXPECT_THAT(two("[0,4]", "[5,9]", 9), HasSubstr("\"b\" begins at byte 5, after a gap from 4"));
}

TEST_F(Safetensors, MessagesStayShortAndPrintable) {
  const std::string message = fault("{\"\\u001b[31m" + std::string(100'000, 'x') + "\": 1}", 0);
  EXPECT_LT(message.size(), 400u);
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
}

TEST_F(Safetensors, RandomDamageIsRefusedOrHarmless) {
  write_sample(path_);
  const std::string sound = read_file(path_);
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = sound;
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    if (!bytes.empty())
      for (int flips = random() % 4; flips >= 0; --flips)
        bytes[random() % bytes.size()] = static_cast<char>(random());
    write_file(path_, bytes);
    try {
      const SafetensorsFile file = SafetensorsFile::open(path_);
      for (const std::string& name : file.names()) {  // every byte promised can be read
        const TensorView& view = file.get(name);
        std::vector<char> copy(view.bytes);
        if (view.bytes > 0) std::memcpy(copy.data(), view.data, view.bytes);
      }
    } catch (const InputError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace memfloor

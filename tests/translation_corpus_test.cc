// Parallel text: the prepared files read back, a clear refusal of anything else, and the toy
// languages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/sha256.h"
#include "data_loaders/bpe.h"
#include "data_loaders/translation.h"
#include "tests/temporary_folder.h"

namespace memfloor {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Sentences = std::vector<std::vector<std::uint16_t>>;

constexpr Split kSplits[] = {Split::train, Split::valid, Split::test};
constexpr Side kSides[] = {Side::source, Side::target};

std::vector<std::int32_t> tokens_of(const TranslationCorpus& corpus, Split split, Side side,
                                    std::int64_t index) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(corpus.length(split, side, index)) + 1,
                                   -7);
  corpus.read(split, side, index, tokens.data());
  EXPECT_EQ(tokens.back(), -7) << "something is written behind the sentence";
  tokens.pop_back();
  return tokens;
}

template <class T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string token_file(const Sentences& sentences, std::uint32_t vocabulary) {
  std::uint64_t tokens = 0;
  for (const auto& sentence : sentences) tokens += sentence.size();
  std::string bytes = "MFTOKENS";
  append<std::uint32_t>(bytes, 1);
  append(bytes, vocabulary);
  append<std::uint64_t>(bytes, sentences.size());
  append(bytes, tokens);
  append<std::uint64_t>(bytes, tokens = 0);
  for (const auto& sentence : sentences) append(bytes, tokens += sentence.size());
  for (const auto& sentence : sentences)
    for (const std::uint16_t token : sentence) append(bytes, token);
  return bytes;
}

constexpr std::size_t kOffsets = 32;  // of a token file's first offset, bytes

/// A folder with a small well-formed corpus; each test damages one file.
class TranslationFiles : public testing::Test {
 protected:
  TranslationFiles() {
    description_ = {
        {"format", 1},
        {"name", "small"},
        {"source", "de"},
        {"target", "en"},
        {"vocabulary", {{"de", 7}, {"en", 6}}},
        {"splits",
         {{"train", {{"pairs", 3}}}, {"valid", {{"pairs", 1}}}, {"test", {{"pairs", 2}}}}},
        {"notes", {"made by a test"}}};
    write("dict.de.txt", "der 9\nh@@ 5\naus 5\n");
    write("dict.en.txt", "the 7\nhouse 2\n");
    write("valid.tok.en", "the house\n");
    write("test.tok.en", "house .\nthe the\n");
    write("train.de.bin", token_file({{4, 5, 6}, {6}, {3, 4}}, 7));
    write("train.en.bin", token_file({{4, 5}, {5}, {4, 3, 5, 4}}, 6));
    write("valid.de.bin", token_file({{4, 5, 6}}, 7));
    write("valid.en.bin", token_file({{4, 5}}, 6));
    write("test.de.bin", token_file({{5, 6}, {4, 4}}, 7));
    write("test.en.bin", token_file({{5, 3}, {4, 4}}, 6));
    describe();
  }

  /// A file; its SHA-256 goes into the description.
  void write(const std::string& name, const std::string& bytes) {
    write_file(folder_ / name, bytes);
    description_["files"][name] = sha256_hex(bytes.data(), bytes.size());
  }
  void describe() { write_file(folder_ / "corpus.json", description_.dump()); }

  std::unique_ptr<TranslationCorpus> open() const {
    return open_translation_corpus(folder_.path().string());
  }
  std::string fault() const {
    return error_of<InputError>([&] { open(); });
  }
  /// The refusal of a file of tokens whose bytes `change` has changed.
  template <class Change>
  std::string fault_of(const std::string& name, const Change& change) {
    std::string bytes = read_file(folder_ / name);
    const std::string original = bytes;
    change(bytes);
    write(name, bytes);
    describe();
    std::string text = fault();
    EXPECT_THAT(text, AllOf(HasSubstr(name), HasSubstr("prepare the data again")));
    write(name, original);
    describe();
    return text;
  }

  TemporaryFolder folder_;
  json description_;
};

/// Overwrites a number in a file's bytes.
template <class T>
auto set(std::size_t at, T value) {
  return [=](std::string& bytes) { std::memcpy(&bytes[at], &value, sizeof value); };
}

TEST_F(TranslationFiles, AreReadBack) {
  const auto corpus = open();
  EXPECT_EQ(corpus->size(Split::train), 3);
  EXPECT_EQ(corpus->size(Split::valid), 1);
  EXPECT_EQ(corpus->size(Split::test), 2);
  EXPECT_EQ(corpus->vocabulary(Side::source), 7);
  EXPECT_EQ(corpus->vocabulary(Side::target), 6);
  EXPECT_THAT(tokens_of(*corpus, Split::train, Side::source, 0), ElementsAre(4, 5, 6, kEnd));
  EXPECT_THAT(tokens_of(*corpus, Split::train, Side::target, 0), ElementsAre(4, 5, kEnd));
  EXPECT_THAT(tokens_of(*corpus, Split::train, Side::source, 2), ElementsAre(3, 4, kEnd));
  EXPECT_THAT(tokens_of(*corpus, Split::train, Side::target, 2), ElementsAre(4, 3, 5, 4, kEnd));
  EXPECT_THAT(tokens_of(*corpus, Split::valid, Side::target, 0), ElementsAre(4, 5, kEnd));
  EXPECT_THAT(tokens_of(*corpus, Split::test, Side::source, 1), ElementsAre(4, 4, kEnd));
  EXPECT_EQ(corpus->word(Side::source, 5), "h@@");
  EXPECT_EQ(corpus->word(Side::target, 5), "house");
  EXPECT_EQ(corpus->word(Side::target, kUnknown), "<unk>");
  EXPECT_EQ(corpus->word(Side::target, kEnd), "</s>");
  EXPECT_THAT(corpus->references(Split::test), ElementsAre("house .", "the the"));
  EXPECT_EQ(corpus->provenance()["name"], "small");
  EXPECT_EQ(corpus->provenance()["sha256"], description_["files"]);
  EXPECT_THROW(corpus->length(Split::train, Side::source, 3), Error);
  EXPECT_THROW(corpus->length(Split::train, Side::source, -1), Error);
  EXPECT_THROW(corpus->word(Side::target, 6), Error);
}

TEST_F(TranslationFiles, PartsHaveNoPadding) {
  const auto corpus = open();
  const std::int32_t sentences[] = {2, 0};
  EXPECT_THAT(first_rows(*corpus, Split::train, Side::source, sentences), ElementsAre(0, 3, 7));
  EXPECT_THAT(first_rows(*corpus, Split::train, Side::target, sentences), ElementsAre(0, 5, 8));
  std::vector<std::int32_t> source(7), input(8), output(8);
  load_part(*corpus, Split::train, sentences, source.data(), input.data(), output.data());
  EXPECT_THAT(source, ElementsAre(3, 4, kEnd, 4, 5, 6, kEnd));
  EXPECT_THAT(input, ElementsAre(kEnd, 4, 3, 5, 4, kEnd, 4, 5));
  EXPECT_THAT(output, ElementsAre(4, 3, 5, 4, kEnd, 4, 5, kEnd));
}

TEST_F(TranslationFiles, ADamagedFileOfTokensIsRefused) {
  const std::string file = "train.de.bin";
  EXPECT_THAT(fault_of(file, [](std::string& b) { b.resize(31); }), HasSubstr("is truncated: 31"));
  EXPECT_THAT(fault_of(file, [](std::string& b) { b.pop_back(); }),
              HasSubstr("is truncated: 75 bytes, too few for 3 sentences of 6 tokens"));
  EXPECT_THAT(fault_of(file, [](std::string& b) { b += 'x'; }),
              HasSubstr("is too long: 77 bytes instead of 76"));
  EXPECT_THAT(fault_of(file, [](std::string& b) { b.clear(); }), HasSubstr("it is empty"));
  EXPECT_THAT(fault_of(file, set(0, 'X')), HasSubstr("does not begin with MFTOKENS"));
  EXPECT_THAT(fault_of(file, set<std::uint32_t>(8, 2)), HasSubstr("has version 2, and 1 is known"));
  EXPECT_THAT(fault_of(file, set<std::uint32_t>(12, 4)), HasSubstr("a vocabulary of 4 entries"));
  EXPECT_THAT(fault_of(file, set<std::uint32_t>(12, 65537)), HasSubstr("vocabulary of 65537"));
  EXPECT_THAT(fault_of(file, set<std::uint64_t>(16, 0)), HasSubstr("holds no sentences"));
  // A count whose bytes overflow 64 bits.
  EXPECT_THAT(fault_of(file, set<std::uint64_t>(16, (1ull << 61) + 2)), HasSubstr("is truncated"));
  EXPECT_THAT(fault_of(file, set<std::uint64_t>(24, 1ull << 63)), HasSubstr("is truncated"));
  EXPECT_THAT(fault_of(file, set<std::uint64_t>(kOffsets, 1)),
              HasSubstr("begins its first sentence at token 1"));
  EXPECT_THAT(fault_of(file, set<std::uint64_t>(kOffsets + 8, 4)),
              HasSubstr("has an empty sentence, number 1"));
  EXPECT_THAT(fault_of(file, set<std::uint64_t>(kOffsets + 8, 5)),
              HasSubstr("impossible end of sentence 1: token 4"));
  EXPECT_THAT(fault_of(file, set<std::uint64_t>(kOffsets + 8, 1ull << 40)),
              HasSubstr("impossible end of sentence 0"));
  EXPECT_THAT(fault_of(file, set<std::uint64_t>(kOffsets + 24, 5)),
              HasSubstr("ends its last sentence at token 5 of 6"));
  const std::size_t first_token = kOffsets + 4 * 8;
  EXPECT_THAT(fault_of(file, set<std::uint16_t>(first_token + 8, 7)),
              HasSubstr("has token 7 in sentence 2, and its vocabulary ends at 6"));
  EXPECT_THAT(fault_of(file, set<std::uint16_t>(first_token + 6, kEnd)),
              HasSubstr("has token 2 in sentence 1, and no sentence holds that special entry"));
  EXPECT_EQ(fault(), "") << "the undamaged files are read again";
}

TEST_F(TranslationFiles, ThatContradictEachOtherAreRefused) {
  EXPECT_THAT(fault_of("test.en.bin", [](std::string& b) { b = token_file({{5}}, 6); }),
              HasSubstr("has 1 sentences, but corpus.json states 2"));
  EXPECT_THAT(fault_of("valid.de.bin", [](std::string& b) { b = token_file({{4}}, 8); }),
              HasSubstr("has 8 entries of its vocabulary, but corpus.json states 7"));
}

TEST_F(TranslationFiles, AChangeThatFitsTheFormIsFoundByTheHash) {
  std::string bytes = read_file(folder_ / "train.en.bin");
  bytes[bytes.size() - 2] = 5;  // another word of the vocabulary
  write_file(folder_ / "train.en.bin", bytes);
  EXPECT_THAT(fault(), HasSubstr("train.en.bin' has not the SHA-256 that corpus.json states"));
  write_file(folder_ / "dict.en.txt", "the 7\nmouse 2\n");
  EXPECT_THAT(fault(), HasSubstr("dict.en.txt' has not the SHA-256"));
}

TEST_F(TranslationFiles, AChangedReferenceIsRefused) {
  write_file(folder_ / "test.tok.en", "house !\nthe the\n");
  EXPECT_THAT(error_of<InputError>([&] { open()->references(Split::test); }),
              HasSubstr("test.tok.en' has not the SHA-256"));
}

TEST_F(TranslationFiles, AMissingFileIsNamed) {
  for (const char* name : {"corpus.json", "dict.en.txt", "train.de.bin", "valid.en.bin"}) {
    const std::string bytes = read_file(folder_ / name);
    std::filesystem::remove(folder_ / name);
    EXPECT_THAT(fault(), AllOf(HasSubstr(concat(name, "': No such file")),
                               HasSubstr("scripts/prepare_iwslt14")));
    write_file(folder_ / name, bytes);
  }
  const auto corpus = open();
  std::filesystem::remove(folder_ / "test.tok.en");
  EXPECT_THAT(error_of<InputError>([&] { corpus->references(Split::test); }),
              HasSubstr("test.tok.en': No such file"));
  write_file(folder_ / "test.tok.en", "house .\nthe the\nthe\n");
  EXPECT_THAT(error_of<InputError>([&] { corpus->references(Split::test); }),
              HasSubstr("test.tok.en' has 3 lines, but corpus.json states 2"));
}

TEST_F(TranslationFiles, ADamagedDictionaryIsRefused) {
  const auto fault_with = [&](const std::string& text) {
    write_file(folder_ / "dict.en.txt", text);
    const std::string sentence = fault();
    EXPECT_THAT(sentence, HasSubstr("dict.en.txt'"));
    return sentence;
  };
  EXPECT_THAT(fault_with("the 7\n"), HasSubstr("has 5 entries, but corpus.json states 6"));
  EXPECT_THAT(fault_with("the 7\nhouse\n"), HasSubstr("word, a space and its count in line 2"));
  EXPECT_THAT(fault_with("the 7\nthe house 2\n"), HasSubstr("in line 2"));
  EXPECT_THAT(fault_with("the 7\r\nhouse 2\r\n"), HasSubstr("in line 1"));
  EXPECT_THAT(fault_with("the 7\n\n"), HasSubstr("in line 2"));
  EXPECT_THAT(fault_with("the 7\nthe 2\n"), HasSubstr("the word 'the' for the second time"));
  EXPECT_THAT(fault_with("the 7\n<pad> 2\n"), HasSubstr("the word '<pad>' for the second time"));
  EXPECT_THAT(fault_with("the 7\nh\xff 2\n"), HasSubstr("not valid UTF-8 in line 2, byte 2"));
}

TEST_F(TranslationFiles, ADamagedDescriptionIsRefused) {
  const auto fault_with = [&](const char* pointer, const json& value) {
    json changed = description_;
    changed[json::json_pointer(pointer)] = value;
    write_file(folder_ / "corpus.json", changed.dump());
    const std::string sentence = fault();
    EXPECT_THAT(sentence, HasSubstr("corpus.json"));
    return sentence;
  };
  EXPECT_THAT(fault_with("/format", 2), HasSubstr("has format 2, and 1 is known"));
  EXPECT_THAT(fault_with("/notes", {"a sentence", 3}),
              HasSubstr("has [\"a sentence\",3] for its 'notes'"));
  EXPECT_THAT(fault_with("/notes", "a sentence"), HasSubstr("has \"a sentence\" for its 'notes'"));
  EXPECT_THAT(fault_with("/splits/valid", json::object()), HasSubstr("lacks 'splits.valid.pairs'"));
  EXPECT_THAT(fault_with("/splits/train/pairs", -3), HasSubstr("has -3 for a count"));
  EXPECT_THAT(fault_with("/splits/train/pairs", 4), HasSubstr("has 3 sentences"));
  EXPECT_THAT(fault_with("/vocabulary", {{"de", 7}}), HasSubstr("lacks 'vocabulary.en'"));
  EXPECT_THAT(fault_with("/vocabulary/de", "7"), HasSubstr("has \"7\" for a count"));
  EXPECT_THAT(fault_with("/source", "../de"), HasSubstr("has \"../de\" for its 'source'"));
  EXPECT_THAT(fault_with("/files", json::object()), HasSubstr("states no SHA-256 of dict.de.txt"));
  EXPECT_THAT(fault_with("/files/train.de.bin", 3), HasSubstr("no SHA-256 for train.de.bin"));
  EXPECT_THAT(fault_with("/files", nullptr), HasSubstr("states no SHA-256 of dict.de.txt"));
  write_file(folder_ / "corpus.json", "{\"format\": 1");
  EXPECT_THAT(fault(), HasSubstr("corpus.json' is not JSON"));
}

TEST(TranslationCorpusPrepared, IsRead) {
  const char* data = std::getenv("MEMFLOOR_TEST_DATA_DIR");
  const std::filesystem::path folder =
      std::filesystem::path(data ? data : "") / "prepared" / "multi30k";
  if (!data || !std::filesystem::is_directory(folder))
    GTEST_SKIP() << "set MEMFLOOR_TEST_DATA_DIR to the folder that holds prepared/multi30k/";
  const auto corpus = open_translation_corpus(folder.string());
  EXPECT_EQ(corpus->size(Split::train), 29000);
  // The tokens of a sentence say what its reference says.
  for (const Split split : {Split::valid, Split::test}) {
    const std::vector<std::string> references = corpus->references(split);
    std::int64_t known = 0;
    for (std::int64_t i = 0; i < corpus->size(split); ++i) {
      std::string text;
      auto tokens = tokens_of(*corpus, split, Side::target, i);
      tokens.pop_back();
      if (std::count(tokens.begin(), tokens.end(), kUnknown)) continue;
      for (const std::int32_t token : tokens) text += corpus->word(Side::target, token) + " ";
      ASSERT_EQ(without_bpe(text), references[static_cast<std::size_t>(i)]) << i;
      ++known;
    }
    EXPECT_GT(known, corpus->size(split) * 9 / 10);
  }
}

// ---- the toy languages --------------------------------------------------------------------------

TEST(SyntheticTranslation, DependsOnSeedSplitAndIndexAlone) {
  const auto corpus = make_synthetic_translation(1), again = make_synthetic_translation(1),
             other = make_synthetic_translation(2);
  EXPECT_EQ(corpus->size(Split::train), 20000);
  EXPECT_EQ(corpus->size(Split::valid), 500);
  EXPECT_EQ(corpus->size(Split::test), 500);
  EXPECT_NE(corpus->provenance(), other->provenance());
  std::set<std::vector<std::int32_t>> seen;
  for (std::int64_t i = 99; i >= 0; --i) {
    for (const Split split : kSplits) {
      for (const Side side : kSides)
        EXPECT_EQ(tokens_of(*corpus, split, side, i), tokens_of(*again, split, side, i));
      seen.insert(tokens_of(*corpus, split, Side::source, i));
    }
    seen.insert(tokens_of(*other, Split::train, Side::source, i));
  }
  EXPECT_GE(seen.size(), 395u);  // of 400; sentences of three words may come twice
  EXPECT_THROW(corpus->length(Split::test, Side::source, 500), Error);
}

TEST(SyntheticTranslation, LengthsVaryAndTheSidesDiffer) {
  const auto corpus = make_synthetic_translation(3);
  std::map<std::int64_t, int> lengths;
  int different = 0;
  std::int32_t largest[2] = {};
  for (std::int64_t i = 0; i < 2000; ++i) {
    for (const Side side : kSides) {
      const auto tokens = tokens_of(*corpus, Split::train, side, i);
      EXPECT_EQ(tokens.back(), kEnd);
      for (std::size_t k = 0; k + 1 < tokens.size(); ++k) {
        ASSERT_GE(tokens[k], kFirstWord);
        ASSERT_LT(tokens[k], corpus->vocabulary(side));
        largest[static_cast<int>(side)] = std::max(largest[static_cast<int>(side)], tokens[k]);
      }
    }
    const std::int64_t source = corpus->length(Split::train, Side::source, i);
    const std::int64_t target = corpus->length(Split::train, Side::target, i);
    ++lengths[source];
    different += source != target;
    EXPECT_GE(target, source);
    EXPECT_LE(target, source + source / 2 + 3);
  }
  EXPECT_EQ(lengths.begin()->first, 4);
  EXPECT_EQ(lengths.rbegin()->first, 36);
  EXPECT_EQ(lengths.size(), 33u);
  EXPECT_GT(different, 1000);
  EXPECT_GT(largest[0], 8700);
  EXPECT_GT(largest[1], 6500);
}

TEST(SyntheticTranslation, AFixedLengthHoldsOnBothSides) {
  const auto corpus = make_synthetic_translation(3, {.sentence_length = 25});
  for (std::int64_t i = 0; i < 500; ++i)
    for (const Side side : kSides)
      ASSERT_EQ(tokens_of(*corpus, Split::train, side, i).size(), 25u) << i;
  EXPECT_THROW(make_synthetic_translation(3, {.sentence_length = 1}), Error);
}

// What a model can learn: a dictionary, a change of order and a particle.
TEST(SyntheticTranslation, FollowsItsTwoRules) {
  const auto corpus =
      make_synthetic_translation(4, {.source_vocabulary = 40, .target_vocabulary = 30});
  int moved = 0, compounds = 0;
  for (std::int64_t i = 0; i < 500; ++i) {
    const auto source = tokens_of(*corpus, Split::test, Side::source, i);
    std::vector<std::int32_t> words(source.begin(), source.end() - 1), expected;
    const auto moves = [&](std::size_t k) { return (words[k] - kFirstWord) % 3 == 1; };
    for (std::size_t k = 0; k + 1 < words.size(); ++k)
      if (moves(k) && !moves(k + 1)) {
        std::swap(words[k], words[k + 1]);
        ++moved, ++k;
      }
    for (const std::int32_t word : words) {
      expected.push_back(kFirstWord + (word - kFirstWord) % 26);
      if ((word - kFirstWord) % 12 == 5) expected.push_back(kFirstWord), ++compounds;
    }
    expected.push_back(kEnd);
    ASSERT_EQ(tokens_of(*corpus, Split::test, Side::target, i), expected) << i;
  }
  EXPECT_GT(moved, 100);
  EXPECT_GT(compounds, 100);
}

TEST(SyntheticTranslation, CommonWordsAreCommon) {
  const auto corpus = make_synthetic_translation(5);
  std::int64_t all = 0, among_first_15 = 0, among_first_511 = 0;
  for (std::int64_t i = 0; i < 2000; ++i)
    for (const std::int32_t token : tokens_of(*corpus, Split::train, Side::source, i)) {
      if (token == kEnd) continue;
      ++all;
      among_first_15 += token < kFirstWord + 15;
      among_first_511 += token < kFirstWord + 511;
    }
  EXPECT_NEAR(among_first_15, all * 4 / 13, all / 50);  // four octaves of thirteen
  EXPECT_NEAR(among_first_511, all * 9 / 13, all / 50);
}

TEST(SyntheticTranslation, HasWordsAndReferences) {
  const auto corpus = make_synthetic_translation(6);
  EXPECT_EQ(corpus->word(Side::source, 7), "s7");
  EXPECT_EQ(corpus->word(Side::target, 4), "t4");
  EXPECT_EQ(corpus->word(Side::target, kUnknown), "<unk>");
  const std::vector<std::string> lines = corpus->references(Split::test);
  ASSERT_EQ(lines.size(), 500u);
  std::string expected;
  for (const std::int32_t token : tokens_of(*corpus, Split::test, Side::target, 17))
    if (token != kEnd) expected += (expected.empty() ? "t" : " t") + std::to_string(token);
  EXPECT_EQ(lines[17], expected);
}

}  // namespace
}  // namespace memfloor

#include "data_loaders/token_file.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/error.h"
#include "data_loaders/translation.h"

namespace memfloor {

static_assert(std::endian::native == std::endian::little, "files of tokens are little-endian");

namespace {

constexpr char kMagic[] = "MFTOKENS";

struct Header {
  char magic[8];
  std::uint32_t version, vocabulary;
  std::uint64_t sentences, tokens;
};
static_assert(sizeof(Header) == 32);

constexpr std::uint32_t kMaxVocabulary = 1 << 16;  // of 16-bit tokens

}  // namespace

TokenFile::TokenFile(const std::string& path, std::string_view advice) : file_(path, advice) {
  const auto refuse = [&](const auto&... fault) {
    throw InputError(concat("'", path, "' ", fault..., "; ", advice));
  };
  const auto size = static_cast<std::uint64_t>(file_.bytes());
  Header header;
  if (size < sizeof header)
    refuse("is truncated: ", size, " bytes, less than the header's ", sizeof header);
  std::memcpy(&header, file_.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof header.magic) != 0)
    refuse("is no file of tokens: it does not begin with ", kMagic);
  if (header.version != 1) refuse("has version ", header.version, ", and 1 is known");
  if (header.vocabulary <= kFirstWord || header.vocabulary > kMaxVocabulary)
    refuse("claims a vocabulary of ", header.vocabulary, " entries, which is not between ",
           kFirstWord + 1, " and ", kMaxVocabulary);
  if (header.sentences == 0) refuse("holds no sentences");
  // The first two conditions keep the sum from overflowing.
  const bool absurd = header.sentences > size || header.tokens > size;
  const std::uint64_t expected = absurd ? 0
                                        : sizeof header +
                                              (header.sentences + 1) * sizeof(std::uint64_t) +
                                              header.tokens * sizeof(std::uint16_t);
  if (absurd || size < expected)
    refuse("is truncated: ", size, " bytes, too few for ", header.sentences, " sentences of ",
           header.tokens, " tokens");
  if (size > expected) refuse("is too long: ", size, " bytes instead of ", expected);

  sentences_ = static_cast<std::int64_t>(header.sentences);
  vocabulary_ = header.vocabulary;
  offsets_ = reinterpret_cast<const std::uint64_t*>(file_.data() + sizeof header);
  tokens_ = reinterpret_cast<const std::uint16_t*>(offsets_ + sentences_ + 1);
  if (offsets_[0] != 0) refuse("begins its first sentence at token ", offsets_[0], ", not 0");
  for (std::int64_t i = 0; i < sentences_; ++i) {
    if (offsets_[i + 1] == offsets_[i]) refuse("has an empty sentence, number ", i);
    if (offsets_[i + 1] < offsets_[i] || offsets_[i + 1] > header.tokens)
      refuse("has an impossible end of sentence ", i, ": token ", offsets_[i + 1]);
  }
  if (offsets_[sentences_] != header.tokens)
    refuse("ends its last sentence at token ", offsets_[sentences_], " of ", header.tokens);
  const std::uint16_t* end = tokens_ + header.tokens;
  const std::uint16_t* fault = std::find_if(tokens_, end, [&](std::uint16_t token) {
    return token < kUnknown || token >= header.vocabulary;
  });
  if (fault != end) {
    const auto at = static_cast<std::uint64_t>(fault - tokens_);
    refuse("has token ", *fault, " in sentence ",
           std::upper_bound(offsets_, offsets_ + sentences_, at) - offsets_ - 1,
           *fault < kUnknown ? ", and no sentence holds that special entry"
                             : concat(", and its vocabulary ends at ", header.vocabulary - 1));
  }
}

std::span<const std::uint16_t> TokenFile::sentence(std::int64_t index) const {
  MEMFLOOR_CHECK(index >= 0 && index < sentences_, "there is no sentence ", index);
  return {tokens_ + offsets_[index], tokens_ + offsets_[index + 1]};
}

}  // namespace memfloor

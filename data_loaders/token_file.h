// The sentences of one side of one split, as numbers in a memory-mapped file, all little-endian:
//   8 bytes "MFTOKENS", uint32 version = 1, uint32 vocabulary, uint64 sentences, uint64 tokens,
//   uint64 offsets[sentences + 1] (counted in tokens, from 0 to `tokens`), uint16 tokens[tokens]
// The end mark of a sentence is not stored.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/mapped_file.h"

namespace memfloor {

class TokenFile {
 public:
  /// Maps and checks it all: no sentence is empty, every token is kUnknown or a word of the
  /// vocabulary. Throws InputError; `advice` ends the sentence.
  TokenFile(const std::string& path, std::string_view advice);

  std::int64_t sentences() const { return sentences_; }
  std::int64_t vocabulary() const { return vocabulary_; }
  /// Without end mark; throws Error where there is no such sentence.
  std::span<const std::uint16_t> sentence(std::int64_t index) const;

 private:
  MappedFile file_;
  std::int64_t sentences_ = 0, vocabulary_ = 0;
  const std::uint64_t* offsets_ = nullptr;
  const std::uint16_t* tokens_ = nullptr;
};

}  // namespace memfloor

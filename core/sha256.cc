#include "core/sha256.h"

#include <openssl/evp.h>

#include "core/error.h"

namespace memfloor {

std::string sha256_hex(const void* data, std::size_t bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  const int done = EVP_Digest(data, bytes, digest, &length, EVP_sha256(), nullptr);
  MEMFLOOR_CHECK(done == 1 && length == 32, "OpenSSL computes no SHA-256");
  std::string hex;
  for (unsigned i = 0; i < length; ++i) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[digest[i] >> 4];
    hex += kDigits[digest[i] & 15];
  }
  return hex;
}

}  // namespace memfloor

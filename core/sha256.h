// SHA-256, which says in a result file exactly which data a run read.
#pragma once

#include <cstddef>
#include <string>

namespace memfloor {

/// 64 lower-case hexadecimal digits.
std::string sha256_hex(const void* data, std::size_t bytes);

}  // namespace memfloor

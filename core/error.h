// Errors are exceptions: libraries of memfloor never call exit().
// Their text is one sentence for a person: what, where, and what to do.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace memfloor {

/// Anything memfloor reports on purpose.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The fault lies in what the user gave: a file, a flag, a spec.
class InputError : public Error {
 public:
  using Error::Error;
};

/// Joins its arguments as text: concat("got ", 3, " bytes").
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

/// "3 B", "1.5 kB", "381.4 MB": bytes for people, decimal units as in the paper.
std::string human_bytes(long long bytes);

/// Throws Error with the failed expression and its place; see MEMFLOOR_CHECK.
[[noreturn]] void fail_check(const char* expression, const char* file, int line,
                             const std::string& message);

}  // namespace memfloor

/// An invariant of our own code; `...` are parts of the message (values, and what to do).
#define MEMFLOOR_CHECK(condition, ...) \
  ((condition)                         \
       ? void()                        \
       : ::memfloor::fail_check(#condition, __FILE__, __LINE__, ::memfloor::concat(__VA_ARGS__)))

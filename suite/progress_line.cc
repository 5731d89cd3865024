#include "suite/progress_line.h"

#include <unistd.h>

#include <cstdio>

namespace memfloor {

std::string human_seconds(double seconds) {
  const auto s = static_cast<long long>(seconds + 0.5);
  char text[48];
  if (s >= 3600)
    std::snprintf(text, sizeof text, "%lld h %02lld min", s / 3600, s % 3600 / 60);
  else if (s >= 60)
    std::snprintf(text, sizeof text, "%lld min %02lld s", s / 60, s % 60);
  else
    std::snprintf(text, sizeof text, "%lld s", s);
  return text;
}

ProgressLine::ProgressLine(std::int64_t total, std::int64_t done)
    : total_(total),
      first_(done),
      terminal_(isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      shown_(start_) {}

ProgressLine::~ProgressLine() {
  if (open_) std::fputc('\n', stderr);
}

void ProgressLine::show(std::int64_t done, const std::string& details,
                        std::optional<double> seconds_left) {
  const auto now = Clock::now();
  const double since = std::chrono::duration<double>(now - shown_).count();
  if (since < (terminal_ ? 0.2 : 30.0)) return;
  shown_ = now;
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const double left = seconds_left    ? *seconds_left
                      : done > first_ ? elapsed * static_cast<double>(total_ - done) /
                                            static_cast<double>(done - first_)
                                      : 0;
  std::fprintf(stderr, "%s%lld of %lld (%.0f %%)  %s  %s left%s", terminal_ ? "\r\033[K" : "",
               static_cast<long long>(done), static_cast<long long>(total_),
               100.0 * static_cast<double>(done) / static_cast<double>(total_), details.c_str(),
               human_seconds(left).c_str(), terminal_ ? "" : "\n");
  std::fflush(stderr);
  open_ = terminal_;
}

void ProgressLine::say(const std::string& line) {
  std::fprintf(stderr, "%s%s\n", open_ ? "\r\033[K" : "", line.c_str());
  open_ = false;
}

std::string fixed(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

}  // namespace memfloor

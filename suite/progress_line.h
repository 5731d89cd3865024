// Progress of long work: on a terminal one line that is rewritten, elsewhere a plain line now and
// then.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace memfloor {

class ProgressLine {
 public:
  /// `total` units of work, of which `done` were done before. Writes to standard error.
  ProgressLine(std::int64_t total, std::int64_t done);
  ~ProgressLine();

  /// Shows `done`, the share, `details` and the time left, if the last showing is long enough ago.
  /// The time is what the units done so far say, or where they differ `seconds_left`.
  void show(std::int64_t done, const std::string& details,
            std::optional<double> seconds_left = std::nullopt);
  /// A line that stays.
  void say(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;
  std::int64_t total_, first_;
  bool terminal_;
  Clock::time_point start_, shown_;
  bool open_ = false;  // an unfinished line is on the terminal
};

/// A number with so many digits after the point.
std::string fixed(double value, int digits);
/// "2 h 05 min", "3 min 20 s", "12 s".
std::string human_seconds(double seconds);

}  // namespace memfloor

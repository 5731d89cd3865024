#include "core/error.h"

#include <cstdio>

namespace memfloor {

std::string human_bytes(long long bytes) {
  const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 999.95 && unit < 4) value /= 1000, ++unit;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

void fail_check(const char* expression, const char* file, int line, const std::string& message) {
  throw Error(concat(message, " [", expression, " failed at ", file, ":", line, "]"));
}

}  // namespace memfloor

#include "suite/cases.h"

#include <gtest/gtest.h>

#include <set>

#include "core/error.h"

namespace memfloor {
namespace {

TEST(Cases, NamesAndFilesAreUnique) {
  std::set<std::string> names, files;
  for (const Case& c : suite_cases(RunSpec{})) {
    EXPECT_TRUE(names.insert(c.name).second) << c.name;
    EXPECT_TRUE(files.insert(concat(name_of(c.kind), "/", file_name(c))).second) << file_name(c);
    EXPECT_LT(file_name(c).size(), 240u) << file_name(c);  // with a suffix still a file's name
    EXPECT_EQ(c.impossible, "") << c.name;
  }
}

}  // namespace
}  // namespace memfloor

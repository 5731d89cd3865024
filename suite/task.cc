#include "suite/task.h"

#include <set>

namespace memfloor {

std::vector<Part> every_shape(const Task& task, const std::vector<Part>& parts) {
  std::vector<Part> shapes;
  std::set<std::string> seen;
  for (const Part& part : parts)
    if (seen.insert(task.shape_name(part)).second) shapes.push_back(part);
  return shapes;
}

}  // namespace memfloor

// Which data the models of the suite train on: what there is in the folder that the user names.
#pragma once

#include <string>

#include "suite/models.h"

namespace memfloor {

/// The run spec's `data` and `data_dir` for one family of models.
struct SuiteData {
  std::string data = "synthetic";
  std::string data_dir;
  std::string sentence;  // "trains on CIFAR-10 in '...'", for people

  bool is_real() const { return data != "synthetic"; }
};

/// Images: the folder is, or holds, cifar-10-batches-bin/. Text: it is, or holds at most two levels
/// down, a prepared corpus; of several the one with the most training pairs. Without such data, or
/// without a folder, the built-in stand-in.
SuiteData find_suite_data(const std::string& folder, ModelFamily family);

}  // namespace memfloor

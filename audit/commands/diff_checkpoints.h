// plumb diff of two checkpoints.
#pragma once

#include <string>

namespace plumbline::audit {

struct DiffCheckpointsArguments {
  std::string a, b;
  std::string before;  // a third checkpoint; empty: none
  std::string map;     // a map of names; empty: none
  std::string format;  // "text" or "json"
  std::string output;
  bool expect_equal = false;
  bool quiet = false;
};

// Compares and prints. Returns exit status 0 if compared (with expect_equal: and equal), 1 if not
// equal, 2 if something could not be read (with expect_equal: no difference was found, but some
// tensors could not be compared).
int DiffCheckpoints(const DiffCheckpointsArguments& arguments);

}  // namespace plumbline::audit

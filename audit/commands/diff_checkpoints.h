// plumb diff of two checkpoints.
#pragma once

#include <string>

namespace plumbline::audit {

struct DiffCheckpointsArguments {
  std::string a, b;
  std::string before;  // empty: none
  std::string map;     // of names; empty: none
  std::string format;  // "text" or "json"
  std::string output;
  bool expect_equal = false;
  bool quiet = false;
};

// The exit status: 0 compared (expect_equal: and equal), 1 not equal, 2 what could not be read
// (expect_equal: no difference, but tensors that could not be compared).
int DiffCheckpoints(const DiffCheckpointsArguments& arguments);

}  // namespace plumbline::audit

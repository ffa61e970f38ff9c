// Runs the plumb program as a user would: arguments in, both outputs and the exit status out.
#pragma once

#include <string>
#include <vector>

namespace plumbline::audit::testing {

struct ProcessResult {
  int status = -1;  // exit status; 128 + the signal that ended it
  std::string out, err;
};

ProcessResult RunPlumb(const std::vector<std::string>& arguments);

}  // namespace plumbline::audit::testing

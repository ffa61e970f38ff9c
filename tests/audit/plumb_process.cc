#include "tests/audit/plumb_process.h"

namespace plumbline::audit::testing {

std::string PlumbProgram() { return PLUMB_PROGRAM; }

Ended RunPlumb(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), PLUMB_PROGRAM);
  return test::RunToEnd(arguments);
}

}  // namespace plumbline::audit::testing

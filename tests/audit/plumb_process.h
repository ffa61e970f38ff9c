// Runs the plumb program as a user does.
#pragma once

#include <string>
#include <vector>

#include "tests/support/process.h"

namespace plumbline::audit::testing {

using test::Ended;

std::string PlumbProgram();  // its path
Ended RunPlumb(std::vector<std::string> arguments);

}  // namespace plumbline::audit::testing

// Starts this test program again as a trainer process.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace plumbline::test {

struct Outcome {
  int status = -1;                 // exit status; 1000 + signal
  std::string output;              // standard output and error
  std::vector<std::string> calls;  // the calls that the stand-in agent received
};

using Environment = std::map<std::string, std::string>;

// This program with --scenario=NAME, without the variables of launchers and Plumbline, and with
// `extra`.
Outcome SpawnScenario(const std::string& scenario, const Environment& extra);

// The main() of such a program: runs the requested scenario, or its tests.
int RunScenarioOrTests(int argc, char** argv);

// Allocators to preload; tools/setup installs them.
inline constexpr const char* kAllocators[] = {"/usr/lib/x86_64-linux-gnu/libjemalloc.so.2",
                                              "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4",
                                              "/usr/lib/x86_64-linux-gnu/libmimalloc.so.2"};

}  // namespace plumbline::test

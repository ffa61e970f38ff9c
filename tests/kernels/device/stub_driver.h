// Lets a test configure the stub of the CUDA driver, and read its calls.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace plumbline {

struct StubLaunch {
  std::string kernel;
  unsigned grid = 0, block = 0;
  void* stream = nullptr;
  void* first_argument = nullptr;  // its value
};

struct StubDriver {
  int init_result = 0;  // result of cuInit
  int retained = 0;     // primary contexts
  bool context_gone = false;
  int version = 13000;              // the version that it supports
  std::string missing;              // a function that it lacks
  std::map<std::string, int> fail;  // results by function
  std::map<std::string, int> calls;
  std::vector<StubLaunch> launches;
  bool capturing = false;           // all streams are capturing
  bool initialised = true;          // if false, cuInit does it
  bool mode_needs_context = false;  // no known driver needs this
  int unsafe = 0;   // calls in a mode in which they would invalidate another thread's capture
  int spoiled = 0;  // calls that invalidate a capture in any mode
  void* own = reinterpret_cast<void*>(uintptr_t{0x77});  // the stream that cuStreamCreate returns
};

}  // namespace plumbline

// Defined by the stub.
using plumbline_stub_driver_fn = plumbline::StubDriver* (*)();

// How a test sets up the stub of the CUDA driver, and what it sees of it.
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
  int init_result = 0;  // of cuInit
  int retained = 0;     // primary contexts
  bool context_gone = false;
  int version = 13000;              // that it supports
  std::string missing;              // a function that it does not have
  std::map<std::string, int> fail;  // CUresults, by function
  std::map<std::string, int> calls;
  std::vector<StubLaunch> launches;
  bool capturing = false;           // all streams are
  bool initialised = true;          // else cuInit does it
  bool mode_needs_context = false;  // as no driver that is known
  int unsafe = 0;   // calls in a mode in which they would spoil another thread's capture
  int spoiled = 0;  // calls that spoil one in any mode
  void* own = reinterpret_cast<void*>(uintptr_t{0x77});  // the stream that cuStreamCreate gives
};

}  // namespace plumbline

// Defined by the stub.
using plumbline_stub_driver_fn = plumbline::StubDriver* (*)();

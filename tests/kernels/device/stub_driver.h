// How a test sets up the stub of the CUDA driver.
#pragma once

namespace plumbline {

struct StubDriver {
  int init_result = 0;  // of cuInit
  int retained = 0;     // primary contexts
  bool context_gone = false;
};

}  // namespace plumbline

// Defined by the stub.
using plumbline_stub_driver_fn = plumbline::StubDriver* (*)();

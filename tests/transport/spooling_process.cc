// A trainer for tests that kill it: `transport_spooling_process SERVER SPOOL` runs steps until it
// dies, with two routers and a series per step, and prints each step that it has ended.
#include <chrono>
#include <cstdio>
#include <thread>

#include "tests/agent/core/support.h"

int main(int argc, char** argv) {
  using namespace plumbline::agent::testing;
  if (argc != 3) return 2;
  plumbline::agent::AgentOptions options = ServerOptions(argv[1]);
  options.spool_dir = argv[2];
  options.queue_bytes = 20'000;  // so that memory does not keep it
  TestRun run(options);
  RouterCall call(32, 8, 2);
  plumbline_error_t error;
  for (int64_t step = 0;; ++step) {
    run.run().StepBegin(step);
    run.Observe("layers.0", step, call);
    run.Observe("layers.1", step, call);
    run.run().Scalar(step, "loss", 1);
    run.run().StepEnd(step);
    if (step % 10 == 9) run.run().Flush(0, &error);
    std::printf("%lld\n", static_cast<long long>(step));
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

// A trainer to be killed: `agent_trainer_process record DIR` runs steps until it is killed.
#include <chrono>
#include <cstring>
#include <thread>

#include "tests/agent/core/support.h"

int main(int argc, char** argv) {
  using namespace plumbline::agent::testing;
  if (argc != 3 || std::strcmp(argv[1], "record") != 0) return 2;
  TestRun run(RecordOptions(argv[2]));
  RouterCall call(32, 8, 2);
  for (int64_t step = 0;; ++step) {
    run.run().StepBegin(step);
    run.Observe("layers.0", step, call);
    run.Observe("layers.1", step, call);
    run.run().Scalar(step, "loss", 1);
    run.run().StepEnd(step);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

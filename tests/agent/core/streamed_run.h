// Steps of a run that streams, and their duration: for the tests of the stream.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

#include "tests/agent/core/support.h"

namespace plumbline::agent::testing {

using Clock = std::chrono::steady_clock;

inline double Seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

// How often this thread has waited; preemptions are not counted.
inline int64_t Waits() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

// Steps with one router and two series. Returns the duration in seconds of the longest step that
// waited.
inline double Train(TestRun* run, RouterCall* call, int64_t first, int64_t steps,
                    std::chrono::milliseconds pause) {
  double longest = 0;
  for (int64_t step = first; step < first + steps; ++step) {
    const int64_t waits = Waits();
    const auto start = Clock::now();
    run->run().StepBegin(step);
    EXPECT_EQ(run->Observe("layers.0", step, *call), PLUMBLINE_OK);
    EXPECT_EQ(run->run().Scalar(step, "loss", 1), PLUMBLINE_OK);
    EXPECT_EQ(run->run().Scalar(step, "lr", 2), PLUMBLINE_OK);
    run->run().StepEnd(step);
    const double took = Seconds(Clock::now() - start);
    if (Waits() != waits) longest = std::max(longest, took);
    if (pause.count() != 0) std::this_thread::sleep_for(pause);
  }
  return longest;
}

}  // namespace plumbline::agent::testing

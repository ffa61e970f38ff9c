// Steps of a run that streams, and how long they take: for the tests of the stream.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

#include "tests/agent/core/support.h"

namespace plumbline::agent::testing {

using Clock = std::chrono::steady_clock;

inline double Seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

// Steps with one router and two series. Returns the longest step's seconds.
inline double Train(TestRun* run, RouterCall* call, int64_t first, int64_t steps,
                    std::chrono::milliseconds pause) {
  double longest = 0;
  for (int64_t step = first; step < first + steps; ++step) {
    const auto start = Clock::now();
    run->run().StepBegin(step);
    EXPECT_EQ(run->Observe("layers.0", step, *call), PLUMBLINE_OK);
    EXPECT_EQ(run->run().Scalar(step, "loss", 1), PLUMBLINE_OK);
    EXPECT_EQ(run->run().Scalar(step, "lr", 2), PLUMBLINE_OK);
    run->run().StepEnd(step);
    longest = std::max(longest, Seconds(Clock::now() - start));
    if (pause.count() != 0) std::this_thread::sleep_for(pause);
  }
  return longest;
}

}  // namespace plumbline::agent::testing

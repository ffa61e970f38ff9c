#include "rules/lib/reduction_replay.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "tests/rules/support/simulated_reduction.h"

namespace plumbline::rules {
namespace {

using testing::ReductionSpec;
using testing::SimulateReduction;

void Show(const ReductionSpec& spec) {
  const ReductionCase c = SimulateReduction(spec);
  const auto begin = std::chrono::steady_clock::now();
  const ReductionReplay r = ReplayReduction(c);
  const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("%-5s %-12s %-14s N=%-3d m=%d-> %-12s %d k=%d/%d C=%llu %.3fs | %s | vs %s %d\n", DTypeName(spec.dtype), spec.model.c_str(), spec.average.c_str(), spec.ranks, spec.samples,
              r.name.c_str(), r.proved, r.discriminating, r.needed,
              (unsigned long long)r.candidates, s, r.Words().c_str(), r.runner_up.c_str(), r.runner_up_matches);
}

TEST(Explore, Models) {
  for (int m : {4096}) for (const char* dtype : {"bf16"}) {
    for (const char* model : {"ring", "tree", "fp32"}) {
      for (int n : {3, 8, 64, 1024}) {
       for (const char* avg : {"none", "pre-multiplied", "post-divided"}) {
        ReductionSpec spec;
        spec.model = model;
        spec.ranks = n;
        spec.samples = m;
        spec.average=avg;
        testing::Set(spec, "dtype", dtype);
        spec.start = n - 1;
        spec.direction = -1;
        Show(spec);
       }
      }
    }
  }
}

}  // namespace
}  // namespace plumbline::rules

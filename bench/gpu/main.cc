// Runs Google Benchmark if there is a GPU. Otherwise prints the reason and exits with status 77.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <string>

#include "tests/support/gpu.h"

int main(int argc, char** argv) {
  const std::string why = plumbline::test::WhyNoGpu();
  if (!why.empty()) {
    std::printf("skipped: %s\n", why.c_str());
    return plumbline::test::kSkipped;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

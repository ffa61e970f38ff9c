// Products asked one after the other within a budget of time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/gpu/gemm/gemm_probe.h"
#include "bench/gpu/gemm/gemm_report.h"

namespace plumbline::bench {

struct RunLimits {
  double seconds = 120;  // of all products
  ProbeLimits each;
};

// Every product ends in the report, and `say` gets its line; what there was no time for is not
// reached. The first error of the device or of a file ends the run; the products behind it are not
// in the report then.
absl::Status AskAll(const std::vector<Product>& products, const RunLimits& limits,
                    MatmulLibrary* library, Report* report,
                    const std::function<void(const std::string&)>& say);

}  // namespace plumbline::bench

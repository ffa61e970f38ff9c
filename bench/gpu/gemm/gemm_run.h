// Probes products one after another within a time budget.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/gpu/gemm/gemm_probe.h"
#include "bench/gpu/gemm/gemm_report.h"

namespace plumbline::bench {

struct RunLimits {
  double seconds = 120;  // for all products
  ProbeLimits each;
};

// Probes all products. Every product is added to the report, and `say` gets its line; if there was
// no time for a product, it is marked as not reached. The first error of the device or of a file
// ends the run; later products are not in the report then.
absl::Status QueryAll(const std::vector<Product>& products, const RunLimits& limits,
                      MatmulLibrary* library, Report* report,
                      const std::function<void(const std::string&)>& print);

}  // namespace plumbline::bench

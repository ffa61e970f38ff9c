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

// Probes all products. Adds each product to the report and passes its line to `print`. If there was
// no time for a product, marks it as not reached. The first error of the device or of a file ends
// the run; then the report lacks the later products.
absl::Status QueryAll(const std::vector<Product>& products, const RunLimits& limits,
                      MatmulLibrary* library, Report* report,
                      const std::function<void(const std::string&)>& print);

}  // namespace plumbline::bench

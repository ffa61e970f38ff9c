#include "bench/gpu/gemm/gemm_run.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"

namespace plumbline::bench {
namespace {

using Clock = std::chrono::steady_clock;

absl::StatusOr<Probed> ProbeWithin(const Product& product, const RunLimits& limits, double left,
                                   MatmulLibrary* library) {
  if (left > 0) {
    ProbeLimits each = limits.each;
    each.seconds = std::min(each.seconds, left);
    return Probe(product, each, library);
  }
  Probed probed;
  probed.product = product;
  probed.why = absl::StrCat("the ", limits.seconds, " s of the run were over");
  return probed;
}

}  // namespace

absl::Status QueryAll(const std::vector<Product>& products, const RunLimits& limits,
                      MatmulLibrary* library, Report* report,
                      const std::function<void(const std::string&)>& print) {
  const auto start = Clock::now();
  for (const Product& product : products) {
    const double spent = std::chrono::duration<double>(Clock::now() - start).count();
    const auto probed = ProbeWithin(product, limits, limits.seconds - spent, library);
    if (!probed.ok()) {
      return absl::Status(probed.status().code(),
                          absl::StrCat(NameOf(product), ": ", probed.status().message()));
    }
    if (absl::Status s = report->Add(*probed); !s.ok()) return s;
    print(LineOf(*probed));
  }
  return absl::OkStatus();
}

}  // namespace plumbline::bench

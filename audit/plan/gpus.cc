#include "audit/plan/gpus.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/str_cat.h"

namespace plumbline::audit {
namespace {

constexpr Gpu kGpus[] = {
    {"a100", 312, 0, 156, 19.5, 80, 300, 8},       {"h100", 989, 1979, 494.5, 67, 80, 450, 8},
    {"h200", 989, 1979, 494.5, 67, 141, 450, 8},   {"b200", 2250, 4500, 1125, 75, 180, 900, 8},
    {"gb200", 2500, 5000, 1250, 80, 186, 900, 72},
};

}  // namespace

absl::StatusOr<Gpu> FindGpu(const std::string& name) {
  std::string low = name;
  std::transform(low.begin(), low.end(), low.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::string names;
  for (const Gpu& gpu : kGpus) {
    if (low == gpu.name) return gpu;
    absl::StrAppend(&names, names.empty() ? "" : ", ", gpu.name);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--gpu: expected one of ", names,
      " (or any name together with --peak, --memory and --domain-link), found \"", name, "\""));
}

absl::StatusOr<double> PeakOf(const Gpu& gpu, const std::string& dtype) {
  const double peak = dtype == "bf16" || dtype == "fp16" ? gpu.bf16
                      : dtype == "fp8"                   ? gpu.fp8
                      : dtype == "tf32"                  ? gpu.tf32
                                                         : gpu.fp32;
  if (peak > 0) return peak * 1e12;
  return absl::InvalidArgumentError(
      absl::StrCat("--dtype: expected one that ", gpu.name, " multiplies, found ", dtype));
}

}  // namespace plumbline::audit

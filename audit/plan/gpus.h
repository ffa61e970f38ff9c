// What GPUs can do, from their makers' data sheets: peaks are dense ones (data sheets often print
// twice that, for sparse matrices). Thread-safe.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace plumbline::audit {

struct Gpu {
  const char* name;
  double bf16, fp8, tf32, fp32;  // TFLOP/s, dense; 0: there is none
  double memory;                 // GB
  double domain_link;            // GB/s, one direction, within a domain
  double domain;                 // GPUs
};

// By name in any case ("h100", "H200"). InvalidArgument: the names there are.
absl::StatusOr<Gpu> FindGpu(const std::string& name);

// FLOP/s in "bf16", "fp16", "fp8", "tf32", "fp32". InvalidArgument: what it has.
absl::StatusOr<double> PeakOf(const Gpu& gpu, const std::string& dtype);

}  // namespace plumbline::audit

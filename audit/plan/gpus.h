// Capabilities of GPUs from their makers' data sheets. Peaks are for dense matrices (data sheets
// often print twice that, for sparse ones). Thread-safe.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace plumbline::audit {

struct Gpu {
  const char* name;
  double bf16, fp8, tf32, fp32;  // TFLOP/s, dense; 0 if not supported
  double memory;                 // GB
  double domain_link;            // GB/s, one direction, within a domain
  double domain;                 // GPUs
};

// Finds a GPU by name, in any case ("h100", "H200"). InvalidArgument lists the known names.
absl::StatusOr<Gpu> FindGpu(const std::string& name);

// Returns the peak in FLOP/s for "bf16", "fp16", "fp8", "tf32" or "fp32". InvalidArgument lists
// what the GPU has.
absl::StatusOr<double> PeakOf(const Gpu& gpu, const std::string& dtype);

}  // namespace plumbline::audit

// Probes one product: its fingerprint, whether it depends on the batch, and elements of random
// data.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "analysis/sums/fingerprint.h"
#include "bench/gpu/gemm/gemm_product.h"
#include "bench/gpu/gemm/matmul.h"

namespace plumbline::bench {

enum class Outcome : uint8_t {
  kRequested,
  kRefused,     // the library does not support this product, or not in this form
  kNotReached,  // there was not enough time for it
};
const char* OutcomeName(Outcome outcome);  // "asked", "refused", "not reached"

struct Probed {
  Product product;
  Outcome outcome = Outcome::kNotReached;
  std::string why;  // why it was not probed; empty if it was
  Algorithm algorithm;
  sums::Fingerprint fingerprint;  // if it was probed
  std::string batch;              // whether a row's result changes with the number of rows; empty
                                  // if not tested
  int64_t calls = 0;
  double seconds = 0;  // for fingerprint and dump, including the opening
  std::string dump;    // the content of a safetensors file; empty: none
};

struct ProbeLimits {
  double seconds = 10;  // in total; the final search for a model may exceed it
  sums::FingerprintOptions options;
};

// Returns an error only if the device fails, or the request is invalid.
absl::StatusOr<Probed> Probe(const Product& product, const ProbeLimits& limits,
                             MatmulLibrary* library);

}  // namespace plumbline::bench

// One product asked: its fingerprint, whether it depends on the batch, and elements of random data.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "analysis/sums/fingerprint.h"
#include "bench/gpu/gemm/gemm_product.h"
#include "bench/gpu/gemm/matmul.h"

namespace plumbline::bench {

enum class Outcome : uint8_t {
  kAsked,
  kRefused,     // the library does not compute this product, or not so
  kNotReached,  // there was no time for it, or not enough
};
const char* OutcomeName(Outcome outcome);  // "asked", "refused", "not reached"

struct Probed {
  Product product;
  Outcome outcome = Outcome::kNotReached;
  std::string why;  // it was not asked; empty when it was
  Algorithm algorithm;
  sums::Fingerprint fingerprint;  // of those that were asked
  std::string batch;              // does a row's result change with the rows? empty: not asked
  int64_t calls = 0;
  double seconds = 0;  // fingerprint and dump, with the opening
  std::string dump;    // a safetensors file, all of it; empty: none
};

struct ProbeLimits {
  double seconds = 10;  // in all; the search for a model at the end may run over
  sums::FingerprintOptions options;
};

// Not OK only for an error of the device, or a request that makes no sense.
absl::StatusOr<Probed> Probe(const Product& product, const ProbeLimits& limits,
                             MatmulLibrary* library);

}  // namespace plumbline::bench

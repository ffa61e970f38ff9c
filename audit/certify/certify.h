// Compares two recordings of the same work by bits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "audit/certify/side.h"
#include "audit/certify/tally.h"

namespace plumbline::audit {

struct CertifyOptions {
  std::string a, b;                 // if `b` is empty, the engine's half of `a` with the trainer's
  std::vector<std::string> ignore;  // globs of series
  Environment declared_a, declared_b;
  uint64_t held_bytes = uint64_t{1} << 30;  // limit of the steps that wait to be compared
};

struct CertifiedSide {
  std::vector<CertifiedFile> files;
  Environment environment;
};

// The result of a comparison.
struct Certificate {
  std::string mode;  // "halves", "recordings", "checkpoints"
  Tally tally;
  uint64_t steps = 0;
  uint64_t vocabulary_rows = 0;
  CertifiedSide a, b;                 // b has no files if one path was given
  std::vector<std::string> problems;  // of the inputs, at most 40

  // "equal", "differs" or "incomplete".
  const char* Verdict() const;
};

// Returns an error if a path cannot be read at all, has several runs, changed while it was read, or
// if too many steps wait.
absl::StatusOr<Certificate> Certify(const CertifyOptions& options);

}  // namespace plumbline::audit

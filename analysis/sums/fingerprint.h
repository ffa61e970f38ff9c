// plumb fingerprint: finds the order and the arithmetic of a sum, and proves both by replay.
//
// T0 determinism, T3 order (analysis/sums/fprev.h), T1 precision of every node, T2 rounding, T4
// guard bits, T5 inputs, T7 batch invariance, and T6: the whole replayed on random data, bit for
// bit. Only T6 makes it a fingerprint. If an order's arithmetic does not replay, it is reported as
// an order.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/sums/model_search.h"
#include "analysis/sums/sum_model.h"
#include "analysis/sums/target.h"

namespace plumbline::sums {

enum class Verdict : uint8_t {
  kVerified,          // replayed on every sample
  kOrderOnly,         // a tree was found, but no arithmetic on it gives the results
  kNoOrder,           // the probes fit no tree
  kNondeterministic,  // one input gave two results; no further test was run
};
const char* VerdictName(Verdict verdict);  // "verified", "order-only", ...
bool ParseVerdict(const std::string& name, Verdict* verdict);

struct TestResult {
  std::string id;      // "T0"
  std::string name;    // "determinism"
  std::string result;  // in words
  bool operator==(const TestResult&) const = default;
};

struct FingerprintOptions {
  uint64_t seed = 1;
  int samples = 250;  // of T6, at least kDistributions
  int repeats = 64;   // of T0
  int64_t most_calls = 20'000'000;
};

struct Fingerprint {
  std::string name;
  std::string library;
  Kind kind = Kind::kSum;
  int n = 0;
  DType input = DType::kF32;
  DType output = DType::kF32;
  Verdict verdict = Verdict::kNoOrder;
  std::string evidence;  // why it is not verified; empty if it is
  SumModel model;        // without nodes if no order was found
  std::string order;     // the tree in words
  std::string tree_hash;
  std::string arithmetic;  // in words; if not verified, of the best model
  int matches = 0;         // of T6
  int samples = 0;
  std::vector<std::string> also;  // other arithmetic that also matches on every sample
  std::vector<Scored> rivals;
  std::vector<TestResult> tests;
  int64_t calls = 0;       // number of calls of the function
  int64_t tree_calls = 0;  // of these, calls to find the order
};

// Returns InvalidArgument if the target or the options are invalid. If the target's call returns an
// error, returns that status. Any behaviour of the function is a verdict, not an error.
absl::StatusOr<Fingerprint> TakeFingerprint(const Target& target,
                                            const FingerprintOptions& options);

// Returns a text for people.
std::string FingerprintText(const Fingerprint& fingerprint);

}  // namespace plumbline::sums

// plumb fingerprint: names the order and the arithmetic of a sum, and proves both by replay.
//
// T0 determinism, T3 order (analysis/sums/fprev.h), T1 precision of every node, T2 rounding, T4
// guard bits, T5 inputs, T7 batch invariance, and T6: the whole replayed on random data, to the
// bit. Only T6 makes it a fingerprint; an order whose arithmetic does not replay is reported as an
// order.
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
  kOrderOnly,         // a tree was found; no arithmetic on it gives the results
  kNoOrder,           // the probes fit no tree
  kNondeterministic,  // one input, two results: nothing further was tried
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
  std::string evidence;  // why it is not verified; empty when it is
  SumModel model;        // no nodes without an order
  std::string order;     // the tree in words
  std::string tree_hash;
  std::string arithmetic;  // in words; of the best model where it is not verified
  int matches = 0;         // of T6
  int samples = 0;
  std::vector<std::string> also;  // other arithmetic that matches everywhere too
  std::vector<Scored> rivals;
  std::vector<TestResult> tests;
  int64_t calls = 0;       // of the function
  int64_t tree_calls = 0;  // of them, to find the order
};

// InvalidArgument: the target or the options make no sense. A status that the target's call
// returned is passed on. Anything the function does is a verdict, not an error.
absl::StatusOr<Fingerprint> TakeFingerprint(const Target& target,
                                            const FingerprintOptions& options);

// What a person reads.
std::string FingerprintText(const Fingerprint& fingerprint);

}  // namespace plumbline::sums

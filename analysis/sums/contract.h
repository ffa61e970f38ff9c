// The contract of a fingerprint: a TOML file that a later run can be held to.
//
// It has no date and no path of its own; the same function gives the same bytes.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/sums/fingerprint.h"

namespace plumbline::sums {

inline constexpr char kContractSchema[] = "plumbline.contract/1";

struct Contract {
  std::string name;
  std::string library;
  Kind kind = Kind::kSum;
  int n = 0;
  DType input = DType::kF32;
  DType output = DType::kF32;
  Verdict verdict = Verdict::kNoOrder;
  std::string evidence;
  // order
  std::string order;
  std::string tree_hash;
  // arithmetic: of the usual node; words tell the exceptions
  std::string arithmetic;
  std::string accumulator;   // "f32", "14-bit"
  std::string formats_hash;  // of every node's format and every product's rounding
  std::string rounding;      // of additions
  std::string products;      // "exact", "rounded", "unrounded", "mixed"; empty: none
  int fraction_bits = -1;    // of aligned addends or blocks; -1: none
  int block = 0;             // most values added at once; 0: two
  int input_bits_a = 0;      // 0: all
  int input_bits_b = 0;
  bool flush_inputs = false;
  bool flush_results = false;
  std::string store_rounding;
  // replay
  int matches = 0;
  int samples = 0;
  std::string model;  // ModelText of a verified one; empty: nothing that could be replayed
  std::vector<TestResult> tests;
  bool operator==(const Contract&) const = default;
};

Contract ContractOf(const Fingerprint& fingerprint);
std::string ContractToml(const Contract& contract);
// `path` is for messages. InvalidArgument: no TOML, a key that is unknown or missing or of another
// type, an unknown name; with path and line.
absl::StatusOr<Contract> ParseContract(const std::string& text, const std::string& path);
// Of several files one after the other: each begins with its `schema`.
absl::StatusOr<std::vector<Contract>> ParseContracts(const std::string& text,
                                                     const std::string& path);
// What differs in order or arithmetic, one line each ("order: held ..., found ..."); empty:
// nothing.
std::vector<std::string> ContractDifferences(const Contract& held, const Contract& found);

}  // namespace plumbline::sums

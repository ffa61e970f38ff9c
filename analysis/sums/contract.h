// The contract of a fingerprint: a TOML file that a later run is compared with.
//
// It contains no date and no path, so the same function gives the same bytes.
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
  // arithmetic: of the usual node; exceptions are described in words
  std::string arithmetic;
  std::string accumulator;   // "f32", "14-bit"
  std::string formats_hash;  // hash of every node's format and every product's rounding
  std::string rounding;      // of additions
  std::string products;  // "exact", "rounded", "unrounded", "mixed"; empty if there are no products
  int fraction_bits = -1;  // of aligned addends or blocks; -1 if there are none
  int block = 0;           // most values added at once; 0 means two
  int input_bits_a = 0;    // 0 means all
  int input_bits_b = 0;
  bool flush_inputs = false;
  bool flush_results = false;
  std::string store_rounding;
  // replay
  int matches = 0;
  int samples = 0;
  std::string model;  // ModelText of a verified model; empty if nothing can be replayed
  std::vector<TestResult> tests;
  bool operator==(const Contract&) const = default;
};

Contract ContractOf(const Fingerprint& fingerprint);
std::string ContractToml(const Contract& contract);
// `path` is used in messages. Returns InvalidArgument, with path and line, if the text is not TOML,
// if a key is unknown, missing or of the wrong type, or if a name is unknown.
absl::StatusOr<Contract> ParseContract(const std::string& text, const std::string& path);
// Parses several files one after the other. Each begins with its `schema`.
absl::StatusOr<std::vector<Contract>> ParseContracts(const std::string& text,
                                                     const std::string& path);
// Returns the differences in order or arithmetic, one line each ("order: held ..., found ..."). If
// there are none, returns an empty vector.
std::vector<std::string> ContractDifferences(const Contract& held, const Contract& found);

}  // namespace plumbline::sums

// CheckRouter: tests with the router itself whether an assignment depends on data that it must not
// use. The router runs on a batch. Then it runs on the same batch with the rows of a suffix (or of
// another sequence) replaced, and with the same shapes, seeds and padding. Assignments are compared
// exactly. Nothing is truncated, because capacity depends on length.
// docs/rules/causality/moe-intervention.md.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace plumbline::analysis {

// A batch to test a router with. Rows are passed to it in this order.
struct RouterInputs {
  int32_t tokens = 0;             // T >= 1
  int32_t experts = 0;            // E >= 1
  std::vector<double> logits;     // [T,E]; -infinity masks an expert; NaN and +infinity are refused
  std::vector<int64_t> sequence;  // [T]; if empty, all rows are one sequence
  std::vector<int64_t> position;  // [T]; if empty, the order of the rows
  std::vector<uint8_t>
      padding;  // [T]; if empty, there is none. Padding is neither replaced nor compared
  std::vector<int64_t> rank;  // [T] rank of each row; if empty, there is one rank
};

// [T,E]: 0 if the token did not choose the expert. Equal numbers mean equal fates (1 = kept, 2 =
// chosen and refused).
using Assignments = std::vector<uint8_t>;

// Runs the router on [T,E] logits, always with the same seeds. If the status is not OK, the check
// ends.
using RouterCall = std::function<absl::StatusOr<Assignments>(const std::vector<double>& logits)>;

struct CheckOptions {
  uint64_t seed = 1;
  int max_calls = 1000;   // maximum router calls, at least 8
  int max_sequences = 4;  // number of sequences whose suffixes are replaced; spread over the batch
  // Rounds to the dtype of the router's input; nullptr: double.
  double (*round)(double x) = nullptr;
};

// Number of interventions that could have shown an influence, and number of those that showed one.
struct FlipShare {
  int64_t tried = 0;
  int64_t flipped = 0;
  // Returns the share. If none was tried, returns NaN.
  double value() const {
    return tried == 0 ? std::numeric_limits<double>::quiet_NaN()
                      : static_cast<double>(flipped) / static_cast<double>(tried);
  }
};

struct FlipWitness {
  int32_t token = -1;    // row; -1 if there is none
  int64_t sequence = 0;  // its sequence and position
  int64_t position = 0;
  int64_t changed_sequence = 0;  // sequence whose rows were replaced
  int64_t cut = 0;    // replaced from this position on; for a whole sequence, its first one
  int32_t lost = -1;  // expert that no longer takes the token; -1 if there is none
  int32_t gained = -1;
  std::string text;  // "token 17 (sequence 3, position 17) lost expert 5 when ..."
  bool found() const { return token >= 0; }
};

struct RouterCheck {
  enum class Row { kClean, kBatchDependent, kFutureLeak, kNondeterministic, kNotTried };
  Row row = Row::kNotTried;
  FlipShare future, earlier, later, other_rank;  // by the replaced rows
  FlipWitness witness;  // of a future flip if there is one, else of another flip
  int64_t calls = 0;
  std::vector<std::string> assumptions;

  // Returns the class in the taxonomy: "future-leak", ...
  const char* row_name() const;
  // Returns what was done and the result, in one or two sentences.
  std::string Explanation() const;
};

// Returns InvalidArgument if the inputs are malformed. If the router fails, or returns another
// shape, returns its status with what was tried.
absl::StatusOr<RouterCheck> CheckRouter(const RouterCall& router, const RouterInputs& inputs,
                                        const CheckOptions& options = {});

}  // namespace plumbline::analysis

// CheckRouter: with the router in hand, does an assignment depend on what it must not know? The
// router runs on a batch, then on the same batch with the rows of a suffix (or of another sequence)
// replaced, shapes, seeds and padding kept, and assignments are compared exactly. Nothing is
// truncated: capacity follows length. docs/rules/causality/moe-intervention.md.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace plumbline::rules {

// A batch to try a router on. Rows are passed to it in this order.
struct RouterInputs {
  int32_t tokens = 0;             // T >= 1
  int32_t experts = 0;            // E >= 1
  std::vector<double> logits;     // [T,E]; -infinity masks an expert, NaN and +infinity are refused
  std::vector<int64_t> sequence;  // [T]; empty: all rows are one sequence
  std::vector<int64_t> position;  // [T]; empty: in the order of the rows
  std::vector<uint8_t> padding;   // [T]; empty: none. Padding is neither replaced nor watched
  std::vector<int64_t> rank;      // [T]; empty: one rank. Whose rows these are
};

// [T,E]: 0 = the token did not choose the expert; equal numbers mean equal fates (1 = kept, 2 =
// chosen and refused).
using Assignments = std::vector<uint8_t>;

// Runs the router on [T,E] logits, always with the same seeds. A status that is not OK ends the
// check.
using RouterCall = std::function<absl::StatusOr<Assignments>(const std::vector<double>& logits)>;

struct CheckOptions {
  uint64_t seed = 1;
  int max_calls = 1000;                 // of the router, at least 8
  int max_sequences = 4;                // whose suffixes are replaced; spread over the batch
  double (*round)(double x) = nullptr;  // into the dtype that the router gets; nullptr: double
};

// Interventions that could have shown an influence, and those that did.
struct FlipShare {
  int64_t tried = 0;
  int64_t flipped = 0;
  // NaN: not tried.
  double value() const {
    return tried == 0 ? std::numeric_limits<double>::quiet_NaN()
                      : static_cast<double>(flipped) / static_cast<double>(tried);
  }
};

struct FlipWitness {
  int32_t token = -1;    // row; -1: none
  int64_t sequence = 0;  // its sequence and position
  int64_t position = 0;
  int64_t changed_sequence = 0;  // whose rows were replaced
  int64_t cut = 0;               // from this position on; the first one for a whole sequence
  int32_t lost = -1;             // expert that no longer takes it; -1: none
  int32_t gained = -1;
  std::string text;  // "token 17 (sequence 3, position 17) lost expert 5 when ..."
  bool found() const { return token >= 0; }
};

struct RouterCheck {
  enum class Row { kClean, kBatchDependent, kFutureLeak, kNondeterministic, kNotTried };
  Row row = Row::kNotTried;
  FlipShare future, earlier, later, other_rank;  // by what was replaced
  FlipWitness witness;  // of a future flip if there is one, else of another
  int64_t calls = 0;
  std::vector<std::string> assumptions;

  // "future-leak", ...: the taxonomy's class.
  const char* row_name() const;
  // What was done and what came of it, in one or two sentences.
  std::string Explanation() const;
};

// InvalidArgument where the inputs are malformed; the router's own status, with what was being
// tried, where it fails or answers in another shape.
absl::StatusOr<RouterCheck> CheckRouter(const RouterCall& router, const RouterInputs& inputs,
                                        const CheckOptions& options = {});

}  // namespace plumbline::rules

// Checks a record's columns against each other, and converts them to a sequence of evidence.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "audit/readers/rollout/columns.h"
#include "audit/readers/rollout/parser.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::audit {

// The place of the sequence's tokens in each list.
struct SequenceShape {
  size_t tokens = 0;
  int64_t first_position = 0;                   // position of the first token
  std::array<size_t, kRolloutColumns> begin{};  // index of the first token in each list
};

// Log-probabilities up to this value are allowed, because of rounding in single precision. A larger
// one belongs to no distribution.
inline constexpr double kMostLogprob = 1e-5;

// Adds the format's constants, then checks that lists fit together and that the log-probabilities
// of judged tokens are possible. If the line is refused, returns false. `line` is used in the
// message.
bool CheckRecord(const ColumnMap& map, std::string_view line, RolloutColumns* columns,
                 SequenceShape* shape, LineProblem* problem);

// Appends a checked record of one token to the `before` tokens of its sequence (0: starts a new
// one). If only some tokens have a column, the others are NaN, no integer, or not judged.
void AppendToken(const RolloutColumns& token, size_t before, RolloutColumns* sequence);

// Return whether a checked record has this half. The trainer wrote records with both halves.
bool HasRollout(const RolloutColumns& columns);
bool HasTrain(const RolloutColumns& columns);
v1::Role RoleOf(const RolloutColumns& columns);

// Converts a checked record. If the record has no id, uses `id`. Returns the number of judged
// tokens.
uint64_t FillSequence(const RolloutColumns& columns, const SequenceShape& shape,
                      const std::string& id, v1::LogprobsSequence* sequence);

// Returns a sequence's id as a number, which is the same on both sides. It is below 2^53, so that
// it prints exactly. Keeps integers, and hashes other ids.
int64_t SequenceNumber(std::string_view id);

}  // namespace plumbline::audit

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

// Which entries of each list are the sequence's tokens.
struct SequenceShape {
  size_t tokens = 0;
  int64_t first_position = 0;                   // position of the first token
  std::array<size_t, kRolloutColumns> begin{};  // index of the first token in each list
};

// A larger log-probability belongs to no distribution; up to it, single precision rounding is
// allowed.
inline constexpr double kMostLogprob = 1e-5;

// Adds the format's constants, then checks that lists fit together and that the log-probabilities
// of judged tokens are possible. Returns false if the line is refused; `line` is for the message.
bool CheckRecord(const ColumnMap& map, std::string_view line, RolloutColumns* columns,
                 SequenceShape* shape, LineProblem* problem);

// Appends a checked record of one token to the `before` tokens of its sequence (0: starts a new
// one). If only some tokens have a column, the others are NaN, no integer, or not judged.
void AppendToken(const RolloutColumns& token, size_t before, RolloutColumns* sequence);

// Which halves a checked record has. A record with both was written by the trainer.
bool HasRollout(const RolloutColumns& columns);
bool HasTrain(const RolloutColumns& columns);
v1::Role RoleOf(const RolloutColumns& columns);

// Converts a checked record. `id` is used if it has none. Returns the number of judged tokens.
uint64_t FillSequence(const RolloutColumns& columns, const SequenceShape& shape,
                      const std::string& id, v1::LogprobsSequence* sequence);

// Returns a sequence's id as a number that tokens of both sides share, below 2^53 so that it prints
// exactly. Integers are kept; other ids are hashed.
int64_t SequenceNumber(std::string_view id);

}  // namespace plumbline::audit

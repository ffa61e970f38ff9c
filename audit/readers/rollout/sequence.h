// A record's columns checked against each other, and as a sequence of evidence.
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
  int64_t first_position = 0;                   // of the first of them
  std::array<size_t, kRolloutColumns> begin{};  // its index in each list
};

// Larger is a log-probability of no distribution; up to it, rounding in single precision.
inline constexpr double kMostLogprob = 1e-5;

// Fills in the format's constants, then checks that lists fit together and that judged tokens have
// log-probabilities that can be such. False when the line is refused; `line` is for the message.
bool CheckRecord(const ColumnMap& map, std::string_view line, RolloutColumns* columns,
                 SequenceShape* shape, LineProblem* problem);

// Adds a token's record, checked, to those of the `before` tokens of its sequence so far (of 0:
// cleared ones). What some tokens have and others do not is NaN, no integer, not judged there.
void AppendToken(const RolloutColumns& token, size_t before, RolloutColumns* sequence);

// Which half or halves a checked record holds. Both in one: what the trainer wrote.
bool HasRollout(const RolloutColumns& columns);
bool HasTrain(const RolloutColumns& columns);
v1::Role RoleOf(const RolloutColumns& columns);

// Of a checked record. `id` where it has none of its own. Returns the number of judged tokens.
uint64_t FillSequence(const RolloutColumns& columns, const SequenceShape& shape,
                      const std::string& id, v1::LogprobsSequence* sequence);

// A sequence's id as a number that tokens of both sides carry, below 2^53 so that it prints
// exactly: whole numbers as they are, others by a hash.
int64_t SequenceNumber(std::string_view id);

}  // namespace plumbline::audit

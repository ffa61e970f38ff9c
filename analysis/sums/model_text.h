// Converts a reconstructed sum to one line of text and back. A contract stores it, so that a later
// run can replay it.
//
// Content: varints (LEB128) of a version, kind, dtypes, the tree (each inner node's children), the
// nodes' formats as runs of a palette, the fused products as runs, and the arithmetic; compressed
// by zstd, in base 64. Trees of lanes and blocks repeat, so 4,096 addends take a few hundred to a
// few thousand bytes.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "analysis/sums/sum_model.h"

namespace plumbline::sums {

inline constexpr int kMostAddends = 1 << 20;

std::string ModelText(const SumModel& model);

// Parses untrusted text. Returns InvalidArgument with what was expected. A returned model can be
// replayed: its tree is complete, every vector has its size, and formats are valid.
absl::StatusOr<SumModel> ParseModel(const std::string& text);

}  // namespace plumbline::sums

// A reconstructed sum as one line of text, and back: what a contract keeps, so that a later run can
// be replayed by it.
//
// The bytes: varints (LEB128) of a version, kind, dtypes, the tree (each inner node's children),
// the nodes' formats as runs of a palette, the fused products as runs, and the arithmetic;
// compressed by zstd, in base 64. Trees of lanes and blocks repeat, so that 4,096 addends take a
// few hundred to a few thousand bytes.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "analysis/sums/sum_model.h"

namespace plumbline::sums {

inline constexpr int kMostAddends = 1 << 20;

std::string ModelText(const SumModel& model);

// Of text that nobody has to be trusted with. InvalidArgument: what was expected. A model that is
// returned can be replayed: its tree is whole, every vector has its size, formats are sane.
absl::StatusOr<SumModel> ParseModel(const std::string& text);

}  // namespace plumbline::sums

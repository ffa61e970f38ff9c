// Series of two sides, held against each other.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/departure/departure.h"
#include "audit/diff/side.h"

namespace plumbline::audit {

enum class DiffRole { kNone, kLoss, kTokens };
// What analysis/series, or the user, takes a series for: a loss (of training or an evaluation),
// tokens, or neither.
DiffRole DiffRoleOf(const std::string& name, const SeriesRoles& roles);

// Curves along one axis.
struct AlongAxis {
  departure::Comparison comparison;
  std::optional<double> onset;  // step or tokens, where there is a departure
  departure::EndDifference end;
  std::optional<departure::FewPoints> few;  // where there are too few points for blocks
  double first = 0, last = 0;               // of the common points
};

struct SeriesDiff {
  std::string name;
  std::string run;  // where run was compared with run: which; else empty
  DiffRole role = DiffRole::kNone;
  uint64_t common = 0;                      // steps that all runs have
  uint64_t only_a = 0, only_b = 0;          // values at steps that not all have
  bool exact = false;                       // one run a side: values were compared bit by bit
  std::optional<int64_t> first_difference;  // the step
  double value_a = 0, value_b = 0;          // there
  std::optional<AlongAxis> by_step;         // of losses
  std::optional<AlongAxis> by_tokens;       // where all have tokens, and not the same at each step
};

// Of the series that every run of both sides has, by name. Where that is none, and each side is one
// path that holds runs of the same names (a folder with a log, event files, a table): run by run.
std::vector<SeriesDiff> CompareSeries(const DiffSide& a, const DiffSide& b);

}  // namespace plumbline::audit

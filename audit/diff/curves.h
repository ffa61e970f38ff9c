// Compares the series of two sides.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/departure/departure.h"
#include "audit/diff/side.h"

namespace plumbline::audit {

enum class DiffRole { kNone, kLoss, kTokens };
// Returns the role of a series from analysis/series or the user: a loss (of training or an
// evaluation), tokens, or neither.
DiffRole DiffRoleOf(const std::string& name, const SeriesRoles& roles);

// Comparison of curves along one axis.
struct AlongAxis {
  departure::Comparison comparison;
  std::optional<double> onset;  // step or tokens, if there is a departure
  departure::EndDifference end;
  std::optional<departure::FewPoints> few;  // set if there are too few points for blocks
  double first = 0, last = 0;               // range of the common points
};

struct SeriesDiff {
  std::string name;
  std::string run;  // the run, if the comparison is run by run; otherwise empty
  DiffRole role = DiffRole::kNone;
  uint64_t common = 0;                      // steps that all runs have
  uint64_t only_a = 0, only_b = 0;          // values at steps that some runs lack
  int64_t last_a = -1, last_b = -1;         // newest step of each side; -1: it has none
  bool exact = false;                       // one run per side: values were compared bit by bit
  std::optional<int64_t> first_difference;  // the first step that differs
  double value_a = 0, value_b = 0;          // values at that step
  std::optional<AlongAxis> by_step;         // for losses
  std::optional<AlongAxis> by_tokens;       // if all runs have tokens, and not the same at each
                                            // step
};

// Returns true if B has no value of this loss in the newest tenth of A's steps or more, and misses
// three values or more there.
bool EndsEarly(const SeriesDiff& series);

// Compares the series that every run of both sides has, by name. If no series is in every run, and
// each side is one path that holds runs of the same names (a folder with a log, event files, a
// table), compares run by run. If no loss has a common name, and each side is one run with one loss
// of training, compares these, and so their evaluation losses: "loss | lm loss".
std::vector<SeriesDiff> CompareSeries(const DiffSide& a, const DiffSide& b);

}  // namespace plumbline::audit

// The exact definition of specs: health (loss-spike, drift of loss-divergence) as a slow
// implementation: it recomputes everything from lists of all points. It uses no code of
// analysis/series except the format of the answer.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace plumbline::analysis::testing {

struct SlowPoint {
  int64_t step = 0;
  double value = 0;
};

struct SlowAnswer {
  std::vector<std::string> excursions;  // as text, as from Words(SeriesEvent)
  std::vector<std::string> rises;
};

// Returns the answer for one attempt with the given history. Judges `points`. `restarts` are rate
// restarts before the point with that number.
SlowAnswer JudgeSlowly(const std::vector<SlowPoint>& history, const std::vector<SlowPoint>& points,
                       const std::set<uint64_t>& restarts = {});

}  // namespace plumbline::analysis::testing

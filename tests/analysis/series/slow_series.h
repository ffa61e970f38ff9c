// The definition of specs: health (loss-spike, drift of loss-divergence), word for word and slowly:
// everything is worked out anew from lists of all points. Shares no code with analysis/series but
// the words of its answer.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace plumbline::rules::testing {

struct SlowPoint {
  int64_t step = 0;
  double value = 0;
};

struct SlowAnswer {
  std::vector<std::string> excursions;  // in words, as Words(SeriesEvent)
  std::vector<std::string> rises;
};

// One attempt whose history is `history`: judged are `points`. `restarts`: of the rate, before the
// point with that number.
SlowAnswer JudgeSlowly(const std::vector<SlowPoint>& history, const std::vector<SlowPoint>& points,
                       const std::set<uint64_t>& restarts = {});

}  // namespace plumbline::rules::testing

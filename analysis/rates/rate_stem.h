// The rates of one stem, over ranks and steps.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "analysis/frame/frame.h"
#include "analysis/rates/apart.h"
#include "analysis/rates/odd_rate.h"
#include "analysis/rates/rank_rate.h"
#include "analysis/rates/rate_course.h"
#include "base/archive.h"

namespace plumbline::analysis {

// The groups of one stem.
struct RateStem {
  std::map<uint32_t, RankRate> ranks;
  std::string op;  // name of the first group
  bool reported_zero = false;
  bool distinguished = false;
  OddRate odd;
  uint64_t at_rest = 0;  // ranks' zeros that the declared length explains
  int64_t step_first = 0;
  int64_t step_last = -1;
  void Persist(Archive& a) {
    a(ranks, op, reported_zero, distinguished, odd, at_rest, step_first, step_last);
  }
};

// The values of one step for a stem, and its state, if it exists. Its groups are kept from step to
// step, so that their memory is reused.
struct RateReported {
  RatesOfStep groups;
  bool exact = false;      // reported by the process itself
  bool unrounded = false;  // a value is -0.0: a 0 that was not rounded (SignedZero)
  bool open = false;       // the step has a value
  RateStem* rate = nullptr;
  RateCourse* course = nullptr;

  // Returns true if the source is a process that reports its own values.
  static bool IsExact(const v1::Source& source) {
    return source.pid() != 0 || !source.tool_version().empty();
  }

  void Note(const v1::Source& source, double value) {
    exact |= IsExact(source);
    unrounded |= value == 0 && std::signbit(value);
  }

  void Close() {
    for (auto& [op, values] : groups) values.clear();
    exact = unrounded = open = false;
  }

  // Takes rows of one rank and one group for which no test applies: the rate is above 0, comes from
  // the same rank and attempt as before, and no resume is being tested. Returns the number of rows.
  // If it is 0, the rows must be judged individually. `attempt` is that of the course.
  size_t TakeRows(const ScalarRows& rows, const ScalarColumn& column, size_t first,
                  uint32_t attempt);
};

}  // namespace plumbline::analysis

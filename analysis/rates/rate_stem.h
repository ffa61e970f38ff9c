// The rates of one stem, over ranks and steps.
#pragma once

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

namespace plumbline::rules {

// The groups of one stem.
struct RateStem {
  std::map<uint32_t, RankRate> ranks;
  std::string op;  // the first group's name
  bool told_zero = false;
  bool told_apart = false;
  OddRate odd;
  uint64_t at_rest = 0;  // ranks' zeros that the declared length explains
  int64_t step_first = 0;
  int64_t step_last = -1;
  void Persist(Archive& a) {
    a(ranks, op, told_zero, told_apart, odd, at_rest, step_first, step_last);
  }
};

// What one step tells of a stem, and what is kept of it, once there is something. Its groups stay
// from step to step, so that their memory is used again.
struct RateTold {
  RatesOfStep groups;
  bool exact = false;  // by the process itself
  bool open = false;   // the step tells anything
  RateStem* rate = nullptr;
  RateCourse* course = nullptr;

  // What a process told of itself.
  static bool IsExact(const v1::Source& source) {
    return source.pid() != 0 || !source.tool_version().empty();
  }

  void Close() {
    for (auto& [op, values] : groups) values.clear();
    exact = open = false;
  }

  // Rows of one rank and one group, where nothing can be said of them: the rate is above 0, is that
  // of the rank and attempt that told it before, and no resume is looked at. How many it took; 0:
  // they are to be looked at. `attempt`: as the course counts them.
  size_t TakeRows(const ScalarRows& rows, const ScalarColumn& column, size_t first,
                  uint32_t attempt);
};

}  // namespace plumbline::rules

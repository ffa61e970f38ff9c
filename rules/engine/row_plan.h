// The prepared sites of one rank's rows of a step. Most steps of most runs are one row of a list,
// or one each of a few lists, that came a thousand times before. Only their values are new.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "analysis/frame/frame.h"
#include "rules/engine/series.h"

namespace plumbline::rules {

struct RowPlan {
  // A list gets a plan when it comes again, because some streams use another one in each step.
  static constexpr uint32_t kComesAgain = 4;
  static constexpr size_t kMostRows = 8;
  struct Site {
    size_t row = 0;  // index of the step's row
    uint32_t column = 0;
    v1::Evidence evidence;  // complete, except step and value
    SiteStep step;          // complete, except what differs per step; its one item is `evidence`
  };

  uint32_t steps = 0;  // seen so far
  bool made = false;
  // by row: shared so that they stay alive
  std::vector<std::shared_ptr<const SeriesColumns>> lists;
  // those that some rule reads, in the order of judging; their addresses are stable
  std::deque<Site> sites;
  std::vector<size_t> by_key;  // rows, in the order in which they are passed to the store
};

// Steps of one rank with one row of every list of one plan. They may be judged together.
struct StepRows {
  static constexpr size_t kFewest = 8;  // for fewer, one by one is cheaper
  static constexpr size_t kMost = 256;  // so that their values stay in the L1 cache, rule by rule
  ScalarRows rows;                      // all columns that some rule reads
  // Called for each row, after the verdicts on its sites and before those at its end. Empty: rows
  // are not stored.
  std::function<void(size_t row)> store;
};

}  // namespace plumbline::rules

// The sites of one rank's rows of a step, ready for the rules: most steps of most runs are one row
// of a list, or one each of a few, that came a thousand times before, and only their values are
// new.
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
  // Lists are planned when they come again: some streams have another one in each step.
  static constexpr uint32_t kComesAgain = 4;
  static constexpr size_t kMostRows = 8;
  struct Site {
    size_t row = 0;  // of the step's
    uint32_t column = 0;
    v1::Evidence evidence;  // but for its step and value
    SiteStep step;          // but for what a step has of its own; its one item is `evidence`
  };

  uint32_t steps = 0;  // that came
  bool made = false;
  std::vector<std::shared_ptr<const SeriesColumns>> lists;  // by row: they stay
  std::deque<Site> sites;  // those that some rule reads, in the order of judging; they do not move
  std::vector<size_t> by_key;  // rows, in the order in which who stores series is shown them
};

// Steps of one rank, each a row of every list of one plan: they may be judged together.
struct StepRows {
  static constexpr size_t kFewest = 8;  // fewer cost less one by one
  static constexpr size_t kMost = 256;  // their values stay in the nearest cache, rule by rule
  ScalarRows rows;                      // all columns that some rule reads
  // To be called of each row, behind what is said of its sites and before what is said at its end;
  // empty: nobody stores them.
  std::function<void(size_t row)> store;
};

}  // namespace plumbline::rules

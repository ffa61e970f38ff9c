// Many steps of one rank's scalars, judged by one rule after the other: what was called for each
// step is called for each rule, and a rule may take a thousand steps that tell it nothing at once.
// What is said comes out in the order in which it would have been said step by step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "rules/engine/row_plan.h"
#include "rules/engine/run_rules.h"

namespace plumbline::rules {

class RowsJudge {
 public:
  // `step`: the site that the verdict was given to; nullptr: to none, at the step's end.
  using Tell = std::function<void(size_t rule, const SiteStep* step, v1::Verdict verdict)>;

  RowsJudge(RunRules* rules, const StepRows& steps) : rules_(rules), steps_(steps) {}
  void Judge(const Tell& tell);

 private:
  static constexpr size_t kEnd = SIZE_MAX;
  struct Held {
    size_t row, column;  // kEnd: at the step's end
    size_t rule;
    v1::Verdict verdict;
  };
  class Sink;
  // Rules that are shown the rows together.
  struct Unit {
    const void* mark = nullptr;
    std::vector<size_t> rules;                 // ascending
    std::vector<ScalarColumn> columns;         // that some of them read
    std::vector<size_t> places;                // of each column among all
    std::vector<std::vector<size_t>> readers;  // of each column, of `rules`
    std::vector<size_t> at_end;                // of `rules`: those that are asked there
  };

  void FindUnits();
  Unit& UnitOf(const Rule& rule);
  void JudgeUnit(Unit& unit);
  size_t TakeRows(const Unit& unit, const ScalarRows& rows, size_t first);
  void JudgeRow(Unit& unit, size_t row);
  void TellAll(const Tell& tell);

  RunRules* const rules_;
  const StepRows& steps_;
  std::vector<Unit> units_;
  std::vector<Held> held_;
};

}  // namespace plumbline::rules

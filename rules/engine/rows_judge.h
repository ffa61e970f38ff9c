// Judges many steps of one rank's scalars rule by rule, instead of step by step. A rule may skip a
// thousand steps at once if none changes its state. The verdicts are emitted in the order in which
// judging step by step would emit them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "rules/engine/row_steps.h"
#include "rules/engine/run_rules.h"

namespace plumbline::rules {

class RowsJudge {
 public:
  // Receives a verdict. `step` is its site; nullptr: it belongs to the step's end.
  using Emit = std::function<void(size_t rule, const SiteStep* step, v1::Verdict verdict)>;

  RowsJudge(RunRules* rules, const StepRows& steps) : rules_(rules), steps_(steps) {}
  void Judge(const Emit& emit);

 private:
  static constexpr size_t kEnd = SIZE_MAX;
  struct Held {
    size_t row, column;  // kEnd: at the step's end
    size_t rule;
    v1::Verdict verdict;
  };
  class Sink;
  // Rules that receive the rows together.
  struct Unit {
    const void* mark = nullptr;
    std::vector<size_t> rules;                 // ascending
    std::vector<ScalarColumn> columns;         // columns that some of these rules read
    std::vector<size_t> places;                // index of each column among all columns
    std::vector<std::vector<size_t>> readers;  // of each column, as indices into `rules`
    std::vector<size_t> at_end;  // indices into `rules`: those called at the step's end
  };

  void FindUnits();
  Unit& UnitOf(Rule* rule);
  void JudgeUnit(Unit& unit);
  size_t TakeRows(const Unit& unit, const ScalarRows& rows, size_t first);
  void JudgeRow(Unit& unit, size_t row);
  void ReportAll(const Emit& emit);

  RunRules* const rules_;
  const StepRows& steps_;
  std::vector<Unit> units_;
  std::vector<Held> held_;
};

}  // namespace plumbline::rules

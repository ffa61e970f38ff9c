#include "rules/engine/rows_judge.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <span>
#include <tuple>
#include <utility>

namespace plumbline::rules {

class RowsJudge::Sink : public VerdictSink {
 public:
  Sink(std::vector<Held>* held, size_t row, size_t column, size_t rule)
      : held_(held), row_(row), column_(column), rule_(rule) {}
  void Add(v1::Verdict verdict) override {
    held_->push_back({row_, column_, rule_, std::move(verdict)});
  }

 private:
  std::vector<Held>* const held_;
  const size_t row_, column_, rule_;
};

void RowsJudge::Judge(const Emit& emit) {
  FindUnits();
  for (Unit& unit : units_) JudgeUnit(unit);
  ReportAll(emit);
}

RowsJudge::Unit& RowsJudge::UnitOf(Rule* rule) {
  const ScalarRule* const scalars = rule->scalars();
  const void* const mark = scalars == nullptr ? nullptr : scalars->judges_apart();
  const auto known = std::find_if(units_.begin(), units_.end(),
                                  [mark](const Unit& unit) { return unit.mark == mark; });
  if (known != units_.end()) return *known;
  return units_.emplace_back(Unit{.mark = mark});
}

void RowsJudge::FindUnits() {
  const std::span<const ScalarColumn> columns = steps_.rows.columns;
  std::vector<std::vector<size_t>> read(rules_->size());  // columns, by rule
  for (size_t place = 0; place < columns.size(); ++place) {
    for (const size_t i : rules_->ReadersOf(columns[place].any())) read[i].push_back(place);
  }
  for (size_t i = 0; i < rules_->size(); ++i) {
    Rule* const rule = rules_->At(i);
    if (rule == nullptr) continue;
    const bool at_end = rules_->IsRequestedAtStepEnd(i, !read[i].empty());
    if (read[i].empty() && !at_end) continue;
    Unit& unit = UnitOf(rule);
    unit.rules.push_back(i);
    if (at_end) unit.at_end.push_back(i);
    for (const size_t place : read[i]) unit.places.push_back(place);
  }
  for (Unit& unit : units_) {
    std::sort(unit.places.begin(), unit.places.end());
    unit.places.erase(std::unique(unit.places.begin(), unit.places.end()), unit.places.end());
    for (const size_t place : unit.places) {
      unit.columns.push_back(columns[place]);
      std::vector<size_t>& readers = unit.readers.emplace_back();
      std::copy_if(
          unit.rules.begin(), unit.rules.end(), std::back_inserter(readers),
          [&](size_t i) { return std::binary_search(read[i].begin(), read[i].end(), place); });
    }
  }
}

void RowsJudge::JudgeUnit(Unit& unit) {
  const ScalarRows rows{steps_.rows.end, steps_.rows.steps, unit.columns};
  for (size_t row = 0; row < rows.size();) {
    row += TakeRows(unit, rows, row);
    if (row < rows.size()) JudgeRow(unit, row++);
  }
}

size_t RowsJudge::TakeRows(const Unit& unit, const ScalarRows& rows, size_t first) {
  if (unit.mark == nullptr) return 0;
  size_t taken = 0;
  const size_t before = held_.size();
  for (const size_t i : unit.rules) {
    Sink sink(&held_, first, kEnd, i);
    const size_t count = rules_->At(i)->scalars()->TakeRows(rows, first, sink);
    assert(i == unit.rules.front() || count == taken);
    taken = count;
  }
  assert(taken > 0 || held_.size() == before);
  for (size_t i = before; i < held_.size(); ++i) held_[i].row = first + taken - 1;
  return taken;
}

// Judges one row like any other step.
void RowsJudge::JudgeRow(Unit& unit, size_t row) {
  const int64_t step = steps_.rows.steps[row];
  for (size_t i = 0; i < unit.columns.size(); ++i) {
    const ScalarColumn& column = unit.columns[i];
    column.Show(row, step);
    for (const size_t rule : unit.readers[i]) {
      Sink sink(&held_, row, unit.places[i], rule);
      rules_->At(rule)->Judge(column.any(), sink);
    }
    column.step->cache.Clear();
  }
  if (unit.at_end.empty()) return;
  StepEnd end = steps_.rows.end;
  end.step = step;
  for (const size_t i : unit.at_end) {
    Sink sink(&held_, row, kEnd, i);
    rules_->At(i)->JudgeStep(end, sink);
  }
  std::erase_if(unit.at_end, [&](size_t i) { return !rules_->QueryAgain(i); });
}

void RowsJudge::ReportAll(const Emit& emit) {
  std::stable_sort(held_.begin(), held_.end(), [](const Held& a, const Held& b) {
    return std::tie(a.row, a.column, a.rule) < std::tie(b.row, b.column, b.rule);
  });
  size_t next = 0;
  const auto report_to = [&](size_t row, bool end) {
    for (; next < held_.size() && held_[next].row == row; ++next) {
      Held& held = held_[next];
      if (!end && held.column == kEnd) return;
      const SiteStep* step = nullptr;
      if (held.column != kEnd) {
        const ScalarColumn& column = steps_.rows.columns[held.column];
        column.Show(row, steps_.rows.steps[row]);
        step = &column.any();
      }
      emit(held.rule, step, std::move(held.verdict));
    }
  };
  for (size_t row = 0; row < steps_.rows.size(); ++row) {
    if (!steps_.store && next == held_.size()) return;
    report_to(row, false);
    if (steps_.store) steps_.store(row);
    report_to(row, true);
  }
}

}  // namespace plumbline::rules

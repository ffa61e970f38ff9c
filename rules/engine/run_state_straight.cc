// Rows that need not wait: those of one rank that is alone, as a log of scalars gives them, are
// judged where they lie. Held one by one they would open and close a million steps.
#include <algorithm>
#include <array>
#include <functional>
#include <limits>

#include "rules/engine/run_state.h"

namespace plumbline::rules {

RunState::Group* RunState::GoesStraight(const v1::Batch& batch) {
  if (!batch.evidence().empty() || batch.series().empty() ||
      batch.series_size() > static_cast<int>(RowPlan::kMostRows))
    return nullptr;
  // Whole rows of one source, in the order of their steps.
  int64_t first = std::numeric_limits<int64_t>::max(), last = kNever;
  const uint32_t index = batch.series(0).source_size() == 1 ? batch.series(0).source(0) : 0;
  for (const v1::SeriesRows& rows : batch.series()) {
    const auto& steps = rows.step();
    if (rows.source_size() != 1 || rows.source(0) != index || !rows.absent().empty() ||
        steps.empty() ||
        std::adjacent_find(steps.begin(), steps.end(), std::greater_equal<>()) != steps.end())
      return nullptr;
    first = std::min(first, steps[0]);
    last = std::max(last, steps[steps.size() - 1]);
  }
  const v1::Source& source = batch.sources(static_cast<int>(index));
  if (source.run() != summary_.run || source.world_size() > 1 ||
      last == std::numeric_limits<int64_t>::max())
    return nullptr;
  // Nobody else is waited for, and nothing is open.
  const auto known = groups_.find({source.attempt(), source.role()});
  if (known == groups_.end()) return nullptr;
  Group& group = known->second;
  if (group.progress.seen() != 1 || group.progress.complete_through(source.rank()) == kNever ||
      group.world_size > 1 || !group.open.empty() || !group.late.empty() || first <= group.closed)
    return nullptr;
  // The batch says that its steps are whole, and speaks of nobody else.
  bool whole = false;
  for (const v1::Progress& progress : batch.progress()) {
    if (progress.source() != index) return nullptr;
    whole |= progress.any_step() && progress.complete_through() >= last;
  }
  return whole ? &group : nullptr;
}

void RunState::CountStraight(const v1::Batch& batch) {
  const v1::Source& source = batch.sources(static_cast<int>(batch.series(0).source(0)));
  for (const v1::SeriesRows& rows : batch.series()) {
    const int last = rows.step_size() - 1;
    Extend(rows.step(0), ranks_seen_.empty());
    Extend(rows.step(last), false);
    Group& group = *AskOf(source).group;
    const Columns columns = sets_->Find(batch.stream_id(), rows.set());
    const auto count = static_cast<uint64_t>(rows.step_size());
    for (RunSummary::SiteCount* of : CountsOf(columns)) of->evidence += count;
    summary_.evidence += count * columns->sites.size();
    // The last row tells how its rank stands.
    const SeriesRow row = ViewOf(rows, last, source.rank(), columns->sites.size());
    if (row.present(columns->shown)) {
      group.endings.Value(source.rank(), rows.step(last), columns->sites[columns->shown],
                          row.values[columns->shown]);
    }
    group.newest_step = std::max(group.newest_step, rows.step(last));
  }
}

void RunState::CloseStraight(const GroupKey& key, Group& group,
                             const std::shared_ptr<const v1::Batch>& batch,
                             const OnClose& on_close) {
  struct List {
    const v1::SeriesRows* rows;
    Columns columns;
    bool held = false;  // somebody looks at its values
    int at = 0;
    int64_t step() const {
      return at < rows->step_size() ? rows->step(at) : std::numeric_limits<int64_t>::max();
    }
  };
  const v1::Source& source = batch->sources(static_cast<int>(batch->series(0).source(0)));
  std::vector<List> lists;
  for (const v1::SeriesRows& rows : batch->series()) {
    List& list = lists.emplace_back(List{&rows, sets_->Find(batch->stream_id(), rows.set())});
    list.held = on_close.series || !list.columns->read.empty();
  }
  const auto by_step = [](const List& a, const List& b) { return a.step() < b.step(); };
  uint32_t held = 0;  // a bit a list of straight_
  RowPlan* plan = nullptr;
  straight_ = {};
  while (true) {
    const List& next = *std::min_element(lists.begin(), lists.end(), by_step);
    if (next.at == next.rows->step_size()) break;
    const int64_t step = next.step();
    // Mostly the lists of the step before: their rows alone are others.
    uint32_t now = 0;
    for (size_t i = 0; i < lists.size(); ++i) {
      if (lists[i].step() == step && lists[i].held) now |= 1u << i;
    }
    if (now != held) {
      straight_.rows.clear();
      for (size_t i = 0; i < lists.size(); ++i) {
        if ((now >> i & 1) != 0)
          straight_.rows.push_back({batch, lists[i].rows, 0, &source, lists[i].columns});
      }
      plan = nullptr;
      held = now;
    }
    size_t row = 0;
    for (size_t i = 0; i < lists.size(); ++i) {
      if (lists[i].step() != step) continue;
      if (lists[i].held) straight_.rows[row++].row = lists[i].at;
      ++lists[i].at;
    }
    group.closed = step;
    if (plan == nullptr) plan = PlanOf(key, group, straight_);
    TellStep(key, group, step, &straight_, plan, on_close);
  }
  straight_ = {};
}

}  // namespace plumbline::rules

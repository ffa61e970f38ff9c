// Judges rows in place if they need not wait: rows of a single rank, as in a log of scalars. If
// they were held one by one, a million steps would be opened and closed.
#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "rules/engine/run_state.h"

namespace plumbline::rules {
namespace {

// A list of a batch, and the first row that was not passed on yet.
struct List {
  const v1::SeriesRows* rows;
  std::shared_ptr<const SeriesColumns> columns;
  bool held = false;  // true if some rule reads its values or they are stored
  int at = 0;
  int64_t step() const {
    return at < rows->step_size() ? rows->step(at) : std::numeric_limits<int64_t>::max();
  }
  std::span<const int64_t> rest() const {
    return {rows->step().data() + at, static_cast<size_t>(rows->step_size() - at)};
  }
};

// Returns how many steps from here on have a row of each list in `now` (one bit per list), and of
// no other list that is held. A list that is not held has no row between them.
size_t CountTogether(const std::vector<List>& lists, uint32_t now) {
  const std::span<const int64_t> steps = lists[static_cast<size_t>(std::countr_zero(now))].rest();
  size_t count = std::min(steps.size(), StepRows::kMost);
  const auto before = [&](int64_t step) {
    return static_cast<size_t>(
        std::lower_bound(steps.begin(), steps.begin() + static_cast<ptrdiff_t>(count), step) -
        steps.begin());
  };
  for (size_t i = 0; i < lists.size(); ++i) {
    if (lists[i].held && (now >> i & 1) == 0) count = before(lists[i].step());
  }
  for (size_t i = 0; i < lists.size(); ++i) {
    const std::span<const int64_t> others = lists[i].rest();
    if ((now >> i & 1) != 0) {
      const auto apart = std::mismatch(steps.begin(), steps.begin() + static_cast<ptrdiff_t>(count),
                                       others.begin(), others.end());
      count = static_cast<size_t>(apart.first - steps.begin());
    } else if (!lists[i].held) {
      for (size_t k = 0; k < others.size(); ++k) {
        const size_t at = before(others[k]);
        if (at == count) break;
        if (steps[at] != others[k]) count = at;
      }
    }
  }
  return count;
}

}  // namespace

RunState::Group* RunState::GoesStraight(const v1::Batch& batch) {
  if (!batch.evidence().empty() || batch.series().empty() ||
      batch.series_size() > static_cast<int>(RowPlan::kMostRows))
    return nullptr;
  // Requires complete rows of one source, in the order of their steps.
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
  // Requires that no other rank is awaited, and that nothing is open.
  const auto known = groups_.find({source.attempt(), source.role()});
  if (known == groups_.end()) return nullptr;
  Group& group = known->second;
  if (group.progress.seen() != 1 || group.progress.complete_through(source.rank()) == kNever ||
      group.world_size > 1 || !group.open.empty() || !group.late.empty() || first <= group.closed)
    return nullptr;
  // Requires that the batch reports its steps as complete, and holds nothing of other sources.
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
    // Only the value of the last row is recorded for its rank.
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
  const v1::Source& source = batch->sources(static_cast<int>(batch->series(0).source(0)));
  std::vector<List> lists;
  for (const v1::SeriesRows& rows : batch->series()) {
    List& list = lists.emplace_back(List{&rows, sets_->Find(batch->stream_id(), rows.set())});
    list.held = on_close.series || !list.columns->read.empty();
  }
  const auto by_step = [](const List& a, const List& b) { return a.step() < b.step(); };
  uint32_t held = 0;  // one bit per list of straight_
  RowPlan* plan = nullptr;
  straight_ = {};
  while (true) {
    const List& next = *std::min_element(lists.begin(), lists.end(), by_step);
    if (next.at == next.rows->step_size()) break;
    const int64_t step = next.step();
    // The lists are usually those of the step before; only their rows change.
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
    if (plan == nullptr) plan = PlanOf(key, group, straight_);
    // Steps that have these lists, and no others that are held, are passed on together.
    const bool nobody_missing = group.world_size == 0 || source.rank() == 0;
    size_t count = 1;
    if (plan != nullptr && on_close.rows && nobody_missing) count = CountTogether(lists, now);
    if (count < StepRows::kFewest) count = 1;
    size_t row = 0;
    int64_t last = step;
    for (size_t i = 0; i < lists.size(); ++i) {
      if ((now >> i & 1) == 0) continue;
      straight_.rows[row++].row = lists[i].at;
      lists[i].at += static_cast<int>(count);
      last = lists[i].rows->step(lists[i].at - 1);
    }
    for (List& list : lists) {
      while (!list.held && list.step() <= last) ++list.at;
    }
    group.closed = last;
    if (count == 1) {
      TellStep(key, group, step, &straight_, plan, on_close);
    } else {
      TellRows(key, group, count, plan, on_close);
    }
  }
  straight_ = {};
}

// Passes on the rows in straight_, and `count` - 1 more rows of each of their lists.
void RunState::TellRows(const GroupKey& key, const Group& group, size_t count, RowPlan* plan,
                        const OnClose& on_close) {
  std::vector<ScalarColumn> columns;
  for (RowPlan::Site& site : plan->sites) {
    const HeldRow& first = straight_.rows[site.row];
    site.step.world_size = group.world_size;
    site.step.items.front().source = first.source;
    site.step.missing_ranks.clear();
    columns.push_back({&site.step, &site.evidence, first.view().values + site.column,
                       first.columns->sites.size()});
  }
  const HeldRow& first = straight_.rows.front();
  StepRows steps;
  steps.rows = {{summary_.run, key.first, key.second, 0, group.world_size},
                {first.rows->step().data() + first.row, count},
                columns};
  if (on_close.series) {
    steps.store = [&](size_t row) {
      const int64_t step = steps.rows.steps[row];
      for (const size_t i : plan->by_key) {
        HeldRow held = straight_.rows[i];
        held.row += static_cast<int>(row);
        const SeriesRow view = held.view();
        on_close.series(SeriesOf(key, group, step, *plan, i, view));
      }
    };
  }
  on_close.rows(steps);
}

}  // namespace plumbline::rules

#include "rules/engine/run_state.h"

#include <algorithm>
#include <tuple>

namespace plumbline::rules {
namespace {

// The order in which a step's evidence is judged, whatever order it came in.
auto JudgingOrder(const v1::Source& source, const v1::Evidence& evidence) {
  return std::make_tuple(std::string_view(evidence.site().layer()),
                         std::string_view(evidence.site().op()), source.rank(), evidence.call());
}

void Extend(int64_t step, RunSummary& summary) {
  const bool first = summary.ranks.empty();  // ranks are entered with their first evidence
  summary.step_first = first ? step : std::min(summary.step_first, step);
  summary.step_last = first ? step : std::max(summary.step_last, step);
}

const v1::Source& SourceOf(const v1::Batch& batch, const v1::SeriesRows& rows, int row) {
  return batch.sources(static_cast<int>(rows.source(rows.source_size() == 1 ? 0 : row)));
}

}  // namespace

SeriesRow RunState::HeldRow::view() const {
  const size_t first = static_cast<size_t>(row) * columns->sites.size();
  const std::string& absent = rows->absent();
  return {source->rank(), rows->value().data() + first,
          absent.empty() ? nullptr : reinterpret_cast<const uint8_t*>(absent.data()), first};
}

RunState::Group& RunState::GroupOf(const v1::Source& source) {
  Group& group = groups_[{source.attempt(), source.role()}];
  group.world_size = std::max(group.world_size, source.world_size());
  group.progress.See(source.rank());
  return group;
}

void RunState::NoteRank(uint32_t rank) {
  if (!ranks_seen_.insert(rank).second) return;
  auto& ranks = summary_.ranks;
  ranks.insert(std::lower_bound(ranks.begin(), ranks.end(), rank), rank);
}

// What came after its step closed, or of an attempt that a later one replaced, is a counted loss.
bool RunState::TooLate(const Group& group, const v1::Source& source, int64_t step) const {
  return step <= group.closed || source.attempt() < newest_attempt_;
}

void RunState::CountLate(const v1::Source& source, int64_t step, const v1::Site& site) {
  const bool superseded = source.attempt() < newest_attempt_;
  v1::Loss late;
  late.set_cause(superseded ? "superseded" : "late");
  *late.mutable_site() = site;
  late.set_count(1);
  late.set_step_first(step);
  late.set_step_last(step);
  CountLoss(source, late);
}

void RunState::Hold(const std::shared_ptr<const v1::Batch>& batch, const v1::Evidence& evidence) {
  const v1::Source& source = batch->sources(static_cast<int>(evidence.source()));
  Group& group = GroupOf(source);
  Extend(evidence.step(), summary_);
  ++summary_.sites[{evidence.site().layer(), evidence.site().op()}].evidence;
  NoteRank(source.rank());
  if (TooLate(group, source, evidence.step())) {
    return CountLate(source, evidence.step(), evidence.site());
  }
  group.newest_step = std::max(group.newest_step, evidence.step());
  group.open[evidence.step()].items.push_back({batch, &source, &evidence});
}

RunState::Counts& RunState::CountsOf(const Columns& columns) {
  const auto [entry, fresh] = counts_.try_emplace(columns);
  if (fresh) {
    for (const v1::Site& site : columns->sites)
      entry->second.push_back(&summary_.sites[{site.layer(), site.op()}]);
  }
  return entry->second;
}

void RunState::HoldRows(const std::shared_ptr<const v1::Batch>& batch, const v1::SeriesRows& rows) {
  const Columns columns = sets_->Find(batch->stream_id(), rows.set());
  Counts& counts = CountsOf(columns);
  for (int row = 0; row < rows.step_size(); ++row) {
    const v1::Source& source = SourceOf(*batch, rows, row);
    if (source.run() != summary_.run) continue;
    Group& group = GroupOf(source);
    const int64_t step = rows.step(row);
    Extend(step, summary_);
    NoteRank(source.rank());
    HeldRow held{batch, &rows, row, &source, columns};
    const SeriesRow view = held.view();
    const bool late = TooLate(group, source, step);
    for (size_t column = 0; column < counts.size(); ++column) {
      if (!view.present(column)) continue;
      ++counts[column]->evidence;
      if (late) CountLate(source, step, columns->sites[column]);
    }
    if (late) continue;
    group.newest_step = std::max(group.newest_step, step);
    group.open[step].rows.push_back(std::move(held));
  }
}

void RunState::CountLoss(const v1::Source& source, const v1::Loss& loss) {
  auto [entry, fresh] =
      summary_.losses.try_emplace({loss.site().layer(), loss.site().op(), loss.cause()});
  auto& count = entry->second;
  count.step_first = fresh ? loss.step_first() : std::min(count.step_first, loss.step_first());
  count.step_last = fresh ? loss.step_last() : std::max(count.step_last, loss.step_last());
  count.count += loss.count();
  const auto at = std::lower_bound(count.ranks.begin(), count.ranks.end(), source.rank());
  if (at == count.ranks.end() || *at != source.rank()) count.ranks.insert(at, source.rank());
}

// A restart repeats steps: what earlier attempts left open at or past its first step is void, what
// lies before can no longer grow.
void RunState::SupersedeOlder(const std::shared_ptr<const v1::Batch>& batch,
                              const OnClose& on_close) {
  uint32_t attempt = newest_attempt_;
  for (const v1::Source& source : batch->sources()) {
    if (source.run() == summary_.run) attempt = std::max(attempt, source.attempt());
  }
  if (attempt == newest_attempt_) return;
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const v1::Evidence& evidence : batch->evidence()) first = std::min(first, evidence.step());
  for (const v1::SeriesRows& rows : batch->series()) {
    for (const int64_t step : rows.step()) first = std::min(first, step);
  }
  for (const v1::Progress& progress : batch->progress())
    first = std::min(first, progress.newest_step());
  // Only a batch that speaks of a step can say where the new attempt begins.
  if (first == std::numeric_limits<int64_t>::max()) return;
  for (auto& [key, group] : groups_) {
    if (key.first >= attempt) continue;
    group.open.erase(group.open.lower_bound(first), group.open.end());
    while (!group.open.empty()) CloseStep(key, group, group.open.begin()->first, on_close);
    group.progress.FinishAll();
  }
  newest_attempt_ = attempt;
}

void RunState::Declare(const v1::Batch& batch, const v1::SiteDeclaration& declaration) {
  const std::pair<std::string, std::string> site{declaration.site().layer(),
                                                 declaration.site().op()};
  RunSummary::SiteCount& count = summary_.sites[site];
  auto& ranks = declared_[site];
  ranks.insert(batch.sources(static_cast<int>(declaration.source())).rank());
  count.declared_step =
      ranks.size() == 1 ? declaration.step() : std::min(count.declared_step, declaration.step());
  count.declared_ranks = static_cast<uint32_t>(ranks.size());
  count.kind = declaration.kind();
}

void RunState::Take(const std::shared_ptr<const v1::Batch>& batch, const OnClose& on_close) {
  SupersedeOlder(batch, on_close);
  const auto ours = [&](uint32_t index) {
    return batch->sources(static_cast<int>(index)).run() == summary_.run;
  };
  for (const v1::SiteDeclaration& declaration : batch->declarations()) {
    if (ours(declaration.source())) Declare(*batch, declaration);
  }
  for (const v1::Evidence& evidence : batch->evidence()) {
    if (ours(evidence.source())) Hold(batch, evidence);
  }
  for (const v1::SeriesRows& rows : batch->series()) HoldRows(batch, rows);
  for (const v1::Loss& loss : batch->losses()) {
    if (ours(loss.source())) CountLoss(batch->sources(static_cast<int>(loss.source())), loss);
  }
  for (const v1::Progress& progress : batch->progress()) {
    if (!ours(progress.source())) continue;
    const v1::Source& source = batch->sources(static_cast<int>(progress.source()));
    Group& group = GroupOf(source);
    group.progress.Advance(source.rank(),
                           progress.any_step() ? progress.complete_through() : kNever,
                           progress.newest_step());
    if (progress.finished()) group.progress.Finish(source.rank());
    group.newest_step = std::max(group.newest_step, group.progress.newest_step());
  }
  for (auto& [key, group] : groups_) CloseReady(key, group, on_close);
}

void RunState::MarkGone(const v1::Source& source, const OnClose& on_close) {
  Group& group = GroupOf(source);
  group.progress.Finish(source.rank());
  CloseReady({source.attempt(), source.role()}, group, on_close);
}

bool RunState::FarBehind(const Group& group, int64_t step) const {
  return group.newest_step != kNever && group.newest_step - step >= window_;
}

bool RunState::Ready(const Group& group, int64_t step) const {
  // A group in which nobody reports progress (lone dumps) is closed at the end only.
  if (!group.progress.any()) return false;
  const bool far_behind = FarBehind(group, step);
  // Ranks never heard of are all alike: only those heard of are looked at one by one.
  if (group.progress.seen() < group.world_size && !far_behind) return false;
  return group.progress.Covered(step, far_behind);
}

void RunState::CloseReady(const GroupKey& key, Group& group, const OnClose& on_close) {
  while (!group.open.empty() && Ready(group, group.open.begin()->first)) {
    CloseStep(key, group, group.open.begin()->first, on_close);
  }
}

void RunState::CloseStep(const GroupKey& key, Group& group, int64_t step, const OnClose& on_close) {
  OpenStep open = std::move(group.open.begin()->second);
  group.open.erase(group.open.begin());
  group.closed = step;
  SiteStep common;
  common.run = summary_.run;
  common.attempt = key.first;
  common.role = key.second;
  common.step = step;
  common.world_size = group.world_size;

  std::deque<v1::Evidence> made;
  std::vector<Held> held = open.items;
  ReadRows(open.rows, &held, &made);
  std::stable_sort(held.begin(), held.end(), [](const Held& a, const Held& b) {
    return JudgingOrder(*a.source, *a.evidence) < JudgingOrder(*b.source, *b.evidence);
  });
  TellSites(common, held, group.progress.Incomplete(step, group.world_size), on_close);
  if (on_close.series) TellSeries(common, &open, on_close);
  on_close.step({summary_.run, key.first, key.second, step, group.world_size});
}

// The evidence that a rule sees is the same whichever way a scalar travelled.
void RunState::ReadRows(const std::vector<HeldRow>& rows, std::vector<Held>* items,
                        std::deque<v1::Evidence>* made) const {
  for (const HeldRow& held : rows) {
    const SeriesRow row = held.view();
    for (const uint32_t column : held.columns->read) {
      if (!row.present(column)) continue;
      v1::Evidence& evidence = made->emplace_back();
      *evidence.mutable_site() = held.columns->sites[column];
      evidence.set_step(held.rows->step(held.row));
      evidence.mutable_scalar()->set_value(row.values[column]);
      evidence.set_sample_size(1);
      items->push_back({held.batch, held.source, &evidence});
    }
  }
}

void RunState::TellSites(const SiteStep& common, const std::vector<Held>& held,
                         const std::vector<uint32_t>& incomplete, const OnClose& on_close) {
  for (size_t begin = 0; begin < held.size();) {
    SiteStep site_step = common;
    site_step.shared = std::make_shared<decltype(site_step.shared)::element_type>();
    site_step.site = held[begin].evidence->site();
    std::set<uint32_t> present;
    bool scalars = true;
    size_t end = begin;
    for (; end < held.size(); ++end) {
      const v1::Site& site = held[end].evidence->site();
      if (site.layer() != site_step.site.layer() || site.op() != site_step.site.op()) break;
      site_step.items.push_back({held[end].source, held[end].evidence});
      present.insert(held[end].source->rank());
      scalars &= held[end].evidence->has_scalar();
    }
    begin = end;
    if (scalars && sets_->Single(site_step.site)->read.empty()) continue;
    for (uint32_t rank : incomplete) {
      if (!present.contains(rank)) site_step.missing_ranks.push_back(rank);
    }
    on_close.site(site_step);
  }
}

void RunState::TellSeries(const SiteStep& common, OpenStep* open, const OnClose& on_close) {
  struct Entry {
    Columns columns;
    SeriesRow row;
  };
  std::vector<Entry> entries;
  entries.reserve(open->rows.size());
  for (const HeldRow& held : open->rows) entries.push_back({held.columns, held.view()});
  // Of scalars that came one by one the last call of a step stands for it.
  std::deque<double> values;
  std::stable_sort(open->items.begin(), open->items.end(), [](const Held& a, const Held& b) {
    return a.evidence->call() < b.evidence->call();
  });
  for (const Held& held : open->items) {
    if (!held.evidence->has_scalar()) continue;
    values.push_back(held.evidence->scalar().value());
    entries.push_back(
        {sets_->Single(held.evidence->site()), {held.source->rank(), &values.back(), nullptr, 0}});
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    if (a.columns != b.columns) return a.columns->key < b.columns->key;
    return a.row.rank < b.row.rank;
  });
  std::vector<SeriesRow> rows;
  for (size_t begin = 0; begin < entries.size();) {
    rows.clear();
    size_t end = begin;
    for (; end < entries.size() && entries[end].columns == entries[begin].columns; ++end)
      rows.push_back(entries[end].row);
    on_close.series({summary_.run, common.attempt, common.role, common.step, common.world_size,
                     entries[begin].columns, rows});
    begin = end;
  }
}

void RunState::CloseAll(const OnClose& on_close) {
  // The map's order is (attempt, role): the same whatever came first.
  for (auto& [key, group] : groups_) {
    while (!group.open.empty()) CloseStep(key, group, group.open.begin()->first, on_close);
  }
}

int64_t RunState::closed_step() const {
  int64_t closed = -1;
  for (const auto& [key, group] : groups_) {
    if (key.first != newest_attempt_ && groups_.size() > 1) continue;
    const int64_t slowest = group.progress.slowest();
    const bool all_done = slowest == std::numeric_limits<int64_t>::max();
    closed = std::max({closed, group.closed, all_done ? group.newest_step : slowest});
  }
  return closed;
}

}  // namespace plumbline::rules

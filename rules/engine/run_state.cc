#include "rules/engine/run_state.h"

#include <algorithm>
#include <tuple>

#include "rules/engine/refused.h"

namespace plumbline::rules {
namespace {

// Returns the sort key by which a step's evidence is judged, independent of the order of arrival.
auto JudgingOrder(const v1::Source& source, const v1::Evidence& evidence) {
  return std::make_tuple(std::string_view(evidence.site().layer()),
                         std::string_view(evidence.site().op()), source.rank(), evidence.call());
}

// Returns the bytes that a parsed batch takes while it is held. It is computed from the content
// only, so that it is the same on every host and after every restart. Evidence, rows and sites take
// more than their bytes on the wire.
uint64_t BytesHeld(const v1::Batch& batch) {
  constexpr uint64_t kBatch = 1024, kEvidence = 400, kRow = 96, kEntry = 128;
  uint64_t rows = 0, sites = 0;
  for (const v1::SeriesRows& r : batch.series()) rows += static_cast<uint64_t>(r.step_size());
  for (const v1::SeriesSet& set : batch.series_sets())
    sites += static_cast<uint64_t>(set.sites_size());
  const auto entries =
      static_cast<uint64_t>(batch.sources_size()) + static_cast<uint64_t>(batch.progress_size()) +
      static_cast<uint64_t>(batch.losses_size()) +
      static_cast<uint64_t>(batch.declarations_size()) + static_cast<uint64_t>(batch.series_size());
  return kBatch + batch.ByteSizeLong() + kEvidence * static_cast<uint64_t>(batch.evidence_size()) +
         kRow * rows + kEntry * (entries + sites);
}

const v1::Source& SourceOf(const v1::Batch& batch, const v1::SeriesRows& rows, int row) {
  return batch.sources(static_cast<int>(rows.source(rows.source_size() == 1 ? 0 : row)));
}

}  // namespace

SeriesRow RunState::ViewOf(const v1::SeriesRows& rows, int row, uint32_t rank, size_t columns) {
  const size_t first = static_cast<size_t>(row) * columns;
  const std::string& absent = rows.absent();
  return {rank, rows.value().data() + first,
          absent.empty() ? nullptr : reinterpret_cast<const uint8_t*>(absent.data()), first};
}

void RunState::Extend(int64_t step, bool first) {
  summary_.step_first = first ? step : std::min(summary_.step_first, step);
  summary_.step_last = first ? step : std::max(summary_.step_last, step);
}

SeriesRow RunState::HeldRow::view() const {
  return ViewOf(*rows, row, source->rank(), columns->sites.size());
}

RunState::Group& RunState::GroupOf(const v1::Source& source) {
  if (source.attempt() < newest_attempt_) return EarlierGroupOf(source);
  const GroupKey key{source.attempt(), source.role()};
  const auto [entry, fresh] = groups_.try_emplace(key);
  Group& group = entry->second;
  if (const auto expected = expected_.find(key); fresh && expected != expected_.end()) {
    for (const uint32_t rank : expected->second) group.progress.Await(rank);
  }
  group.world_size = std::max(group.world_size, source.world_size());
  group.progress.Hear(source.rank());
  return group;
}

RunSummary& RunState::Summarize() {
  summary_.ranks.assign(ranks_seen_.begin(), ranks_seen_.end());
  return summary_;
}

// Returns the step that holds a rank's evidence, among the open ones or the late ones.
RunState::OpenStep& RunState::StepOf(Group& group, const v1::Source& source, int64_t step) {
  if (step > group.closed) return OpenAt(group, step);
  const auto [newest, fresh] = late_until_.try_emplace({&group, source.rank()}, step);
  if (!fresh) newest->second = std::max(newest->second, step);
  return group.late[source.rank()][step];
}

void RunState::Hold(const std::shared_ptr<const v1::Batch>& batch, const v1::Evidence& evidence) {
  const v1::Source& source = batch->sources(static_cast<int>(evidence.source()));
  Extend(evidence.step(), ranks_seen_.empty());
  ++summary_.sites[{evidence.site().layer(), evidence.site().op()}].evidence;
  ++summary_.evidence;
  ranks_seen_.insert(source.rank());
  if (evidence.step() >= SupersededFrom(source.attempt()))
    return CountLate(nullptr, source, evidence.step(), evidence.site());
  Group* group = &GroupOf(source);
  if (evidence.step() <= group->closed) CountLate(group, source, evidence.step(), evidence.site());
  StepOf(*group, source, evidence.step()).items.push_back({batch, &source, &evidence});
  if (evidence.has_scalar())
    group->endings.Value(source.rank(), evidence.step(), evidence.site(),
                         evidence.scalar().value());
}

// Returns the open step, and records that the current batch is held in it.
RunState::OpenStep& RunState::OpenAt(Group& group, int64_t step) {
  group.newest_step = std::max(group.newest_step, step);
  const auto [newest, fresh] = held_until_.try_emplace(&group, step);
  if (!fresh) newest->second = std::max(newest->second, step);
  // Steps usually arrive in order.
  const bool newest_yet = group.open.empty() || group.open.rbegin()->first < step;
  return newest_yet ? AddOpen(group, step) : group.open[step];
}

// Steps close in order, so a whole batch is held until the newest of its steps closes.
void RunState::Charge(const v1::Batch& batch) {
  if (held_until_.empty() && late_until_.empty()) return;
  const uint64_t bytes = BytesHeld(batch);
  const auto charge = [&](Group* group, OpenStep& step) {
    step.bytes += bytes;
    group->bytes += bytes;
    open_bytes_ += bytes;
  };
  for (const auto& [group, step] : held_until_) charge(group, group->open.at(step));
  for (const auto& [of, step] : late_until_)
    charge(of.first, of.first->late.at(of.second).at(step));
  held_until_.clear();
  late_until_.clear();
}

RunState::OpenStep RunState::TakeOut(Group& group, std::map<int64_t, OpenStep>* of,
                                     std::map<int64_t, OpenStep>::iterator step) {
  OpenStep open = std::move(step->second);
  of->erase(step);
  group.bytes -= open.bytes;
  open_bytes_ -= open.bytes;
  return open;
}

// Closes the oldest steps of the group that holds the most bytes, until at most `bytes` are open.
void RunState::MakeRoom(uint64_t bytes, const OnClose& on_close) {
  while (open_bytes_ > bytes) {
    const auto largest = std::max_element(
        groups_.begin(), groups_.end(),
        [](const auto& a, const auto& b) { return a.second.bytes < b.second.bytes; });
    auto& [key, group] = *largest;
    if (!group.late.empty()) {
      CloseLate(key, group, true, on_close);
      continue;
    }
    ++closed_for_room_;
    CloseStep(key, group, group.open.begin()->first, on_close);
    group.progress.CloseOver(group.closed, LateCause::kNoRoom);
  }
}

// Adds the rank to the set of ranks that declared or lost something. Returns false if the rank is
// known, or if these sets have reached a quarter of the run's bytes.
bool RunState::KeepRank(std::set<uint32_t>* ranks, uint32_t rank) {
  constexpr uint64_t kBytes = 48;  // of a node
  if (options_.max_bytes > 0 && kept_ranks_ >= options_.max_bytes / 4 / kBytes) return false;
  const bool fresh = ranks->insert(rank).second;
  kept_ranks_ += fresh ? 1 : 0;
  return fresh;
}

RunState::Counts& RunState::CountsOf(const Columns& columns) {
  const auto [entry, fresh] = counts_.try_emplace(columns);
  if (fresh) {
    for (const v1::Site& site : columns->sites)
      entry->second.push_back(&summary_.sites[{site.layer(), site.op()}]);
  }
  return entry->second;
}

RunState::RowSource RunState::AskOf(const v1::Source& source) {
  RowSource of{&source, source.run() == summary_.run};
  if (!of.ours) return of;
  ranks_seen_.insert(source.rank());
  of.superseded_from = SupersededFrom(source.attempt());
  of.group = &GroupOf(source);
  return of;
}

void RunState::CountRow(const Columns& columns, const SeriesRow& row, Counts* counts,
                        const RowSource& of, int64_t step, bool late) {
  for (size_t column = 0; column < counts->size(); ++column) {
    if (!row.present(column)) continue;
    ++(*counts)[column]->evidence;
    ++summary_.evidence;
    if (late)
      CountLate(step >= of.superseded_from ? nullptr : of.group, *of.source, step,
                columns->sites[column]);
  }
}

// There are millions of scalars, so the work that many rows share is done once. If no rule reads a
// series and it is not stored, only the existence of the step is held.
void RunState::HoldRows(const std::shared_ptr<const v1::Batch>& batch, const v1::SeriesRows& rows,
                        bool stored) {
  const Columns columns = sets_->Find(batch->stream_id(), rows.set());
  Counts& counts = CountsOf(columns);
  const bool whole = rows.absent().empty();
  const bool held = stored || !columns->read.empty();
  uint64_t whole_rows = 0;
  RowSource of;
  for (int row = 0; row < rows.step_size(); ++row) {
    const v1::Source& source = SourceOf(*batch, rows, row);
    const bool first = ranks_seen_.empty();
    if (&source != of.source) of = AskOf(source);
    if (!of.ours) continue;
    const int64_t step = rows.step(row);
    Extend(step, first);
    const SeriesRow view = ViewOf(rows, row, source.rank(), columns->sites.size());
    const bool superseded = step >= of.superseded_from;
    const bool late = superseded || step <= of.group->closed;
    if (whole && !late) {
      ++whole_rows;
    } else {
      CountRow(columns, view, &counts, of, step, late);
    }
    if (superseded) continue;
    // If consecutive rows belong to one rank, only the value of the last row is recorded.
    const bool last = row + 1 == rows.step_size() || &SourceOf(*batch, rows, row + 1) != &source;
    if (last && view.present(columns->shown)) {
      of.group->endings.Value(source.rank(), step, columns->sites[columns->shown],
                              view.values[columns->shown]);
    }
    OpenStep& open = StepOf(*of.group, source, step);
    if (held || late) open.rows.push_back({batch, &rows, row, &source, columns});
  }
  for (RunSummary::SiteCount* count : counts) count->evidence += whole_rows;
  summary_.evidence += whole_rows * counts.size();
}

void RunState::CountLoss(const v1::Source& source, const v1::Loss& loss) {
  auto [entry, fresh] =
      summary_.losses.try_emplace({loss.site().layer(), loss.site().op(), loss.cause()});
  auto& count = entry->second;
  count.step_first = fresh ? loss.step_first() : std::min(count.step_first, loss.step_first());
  count.step_last = fresh ? loss.step_last() : std::max(count.step_last, loss.step_last());
  count.count += loss.count();
  if (loss.cause() == kRefusedLoss || loss.cause() == kSupersededLoss)
    fresh_lost_[loss.cause()] += loss.count();
  KeepRank(&count.ranks, source.rank());
}

// A restart repeats steps. What earlier attempts left open at or after its first step is void;
// earlier steps can no longer grow.
void RunState::SupersedeOlder(const std::shared_ptr<const v1::Batch>& batch,
                              const OnClose& on_close) {
  uint32_t attempt = newest_attempt_;
  for (const v1::Source& source : batch->sources()) {
    if (source.run() == summary_.run) attempt = std::max(attempt, source.attempt());
  }
  if (attempt == 0) return;
  const int64_t first = FirstStepOf(*batch, attempt);
  // Only a batch with a step shows where the new attempt begins.
  if (first == std::numeric_limits<int64_t>::max()) return;
  NoteFirst(attempt, first);
  if (attempt == newest_attempt_) return;
  for (auto& [key, group] : groups_) {
    if (key.first >= attempt) continue;
    for (auto step = group.open.lower_bound(first); step != group.open.end();) {
      SiteStep common = CommonOf(key, group, step->first);
      common.late = true;
      OpenStep open = TakeOut(group, &group.open, step++);
      if (on_close.series) TellSeries(common, &open, on_close);  // stored, not judged
    }
    while (!group.open.empty()) CloseStep(key, group, group.open.begin()->first, on_close);
    CloseLate(key, group, true, on_close);
  }
  if (on_close.superseded && !groups_.empty()) {
    RunEnds ends = EndsOf(newest_attempt_);
    ends.superseded = true;
    on_close.superseded(ends);
  }
  newest_attempt_ = attempt;
  // What still arrives for these attempts goes to separate groups (EarlierGroupOf).
  std::erase_if(groups_, [&](const auto& group) { return group.first.first < attempt; });
}

void RunState::Declare(const v1::Batch& batch, const v1::SiteDeclaration& declaration) {
  const std::pair<std::string, std::string> site{declaration.site().layer(),
                                                 declaration.site().op()};
  RunSummary::SiteCount& count = summary_.sites[site];
  auto& ranks = declared_[site];
  KeepRank(&ranks, batch.sources(static_cast<int>(declaration.source())).rank());
  count.declared_step =
      ranks.size() == 1 ? declaration.step() : std::min(count.declared_step, declaration.step());
  count.declared_ranks = static_cast<uint32_t>(ranks.size());
  count.kind = declaration.kind();
}

void RunState::Take(const std::shared_ptr<const v1::Batch>& batch, const OnClose& on_close) {
  over_ = false;
  NoteStream(batch->stream_id());
  SupersedeOlder(batch, on_close);
  FindLastWords(*batch);
  const auto ours = [&](uint32_t index) {
    return batch->sources(static_cast<int>(index)).run() == summary_.run;
  };
  for (const v1::SiteDeclaration& declaration : batch->declarations()) {
    if (ours(declaration.source())) Declare(*batch, declaration);
  }
  for (const v1::Evidence& evidence : batch->evidence()) {
    if (ours(evidence.source())) Hold(batch, evidence);
  }
  Group* const straight = GoesStraight(*batch);
  if (straight != nullptr) {
    CountStraight(*batch);
  } else {
    for (const v1::SeriesRows& rows : batch->series())
      HoldRows(batch, rows, static_cast<bool>(on_close.series));
  }
  for (const v1::Loss& loss : batch->losses()) {
    if (ours(loss.source())) CountLoss(batch->sources(static_cast<int>(loss.source())), loss);
  }
  for (const v1::Progress& progress : batch->progress()) {
    if (!ours(progress.source())) continue;
    const v1::Source& source = batch->sources(static_cast<int>(progress.source()));
    if (source.attempt() < newest_attempt_) continue;
    Group& group = GroupOf(source);
    group.progress.Advance(source.rank(),
                           progress.any_step() ? progress.complete_through() : kNever,
                           progress.newest_step());
    group.endings.Hear(source);
    if (progress.finished()) {
      group.progress.Finish(source.rank());
      group.endings.Said(source, progress);
    }
    if (!group.late.empty()) late_of_.emplace(&group, source.rank());
    group.newest_step = std::max(group.newest_step, group.progress.newest_step());
  }
  for (const auto& [of, step] : late_until_) late_of_.insert(of);
  Charge(*batch);
  for (auto& [key, group] : groups_) {
    if (key.first < newest_attempt_) {
      CloseLate(key, group, true, on_close);  // no other rank joins it, so it need not wait
      continue;
    }
    if (&group == straight) CloseStraight(key, group, batch, on_close);
    CloseReady(key, group, on_close);
    CloseLateSpokenOf(key, group, on_close);
  }
  late_of_.clear();
  std::erase_if(groups_, [&](const auto& of) { return of.first.first < newest_attempt_; });
  last_words_.clear();
  if (options_.max_bytes > 0) MakeRoom(options_.max_bytes, on_close);
  TellOfLate(on_close);
}

bool RunState::FarBehind(const Group& group, int64_t step) const {
  return group.newest_step > step && group.newest_step - step >= options_.window_steps;
}

bool RunState::Ready(const Group& group, int64_t step) const {
  // A group without progress reports (lone dumps) is closed only at the end.
  if (!group.progress.any()) return false;
  const bool far_behind = !options_.hosted && FarBehind(group, step);
  // Unseen ranks are all alike, so only seen ranks are examined one by one.
  if (group.progress.awaits_unseen(group.world_size) && !far_behind) return false;
  return group.progress.Covered(step, far_behind);
}

void RunState::CloseReady(const GroupKey& key, Group& group, const OnClose& on_close) {
  while (!group.open.empty() && Ready(group, group.open.begin()->first)) {
    CloseStep(key, group, group.open.begin()->first, on_close);
  }
}

SiteStep RunState::CommonOf(const GroupKey& key, const Group& group, int64_t step) const {
  SiteStep common;
  common.run = summary_.run;
  common.attempt = key.first;
  common.role = key.second;
  common.step = step;
  common.world_size = group.world_size;
  return common;
}

std::vector<RunState::Held> RunState::HeldOf(const OpenStep& open, std::deque<v1::Evidence>* made) {
  std::vector<Held> held = open.items;
  ReadRows(open.rows, &held, made);
  const auto before = [](const Held& a, const Held& b) {
    return JudgingOrder(*a.source, *a.evidence) < JudgingOrder(*b.source, *b.evidence);
  };
  // Readers usually give columns in this order, and a sort would allocate memory even so.
  if (!std::is_sorted(held.begin(), held.end(), before))
    std::stable_sort(held.begin(), held.end(), before);
  return held;
}

void RunState::CloseStep(const GroupKey& key, Group& group, int64_t step, const OnClose& on_close) {
  StepNode node = group.open.extract(group.open.begin());
  OpenStep& open = node.mapped();
  group.bytes -= open.bytes;
  open_bytes_ -= open.bytes;
  group.closed = step;
  TellStep(key, group, step, &open, PlanOf(key, group, open), on_close);
  KeepSpare(std::move(node));
}

void RunState::TellStep(const GroupKey& key, Group& group, int64_t step, OpenStep* open,
                        RowPlan* plan, const OnClose& on_close) {
  if (plan != nullptr) {
    CloseRow(key, group, step, *open, plan, on_close);
  } else {
    const SiteStep common = CommonOf(key, group, step);
    const std::vector<Held> held = HeldOf(*open, &made_);
    if (!held.empty()) TellSites(common, held, group.progress, on_close);
    if (on_close.series) TellSeries(common, open, on_close);
  }
  on_close.step({summary_.run, key.first, key.second, step, group.world_size});
}

// Rules see the same evidence whichever way a scalar travelled. Entries of `made` from an earlier
// step are reused, because their site is usually the same.
void RunState::ReadRows(const std::vector<HeldRow>& rows, std::vector<Held>* items,
                        std::deque<v1::Evidence>* made) {
  size_t used = 0;
  for (const HeldRow& held : rows) {
    const SeriesRow row = held.view();
    for (const uint32_t column : held.columns->read) {
      if (!row.present(column)) continue;
      v1::Evidence& evidence = used < made->size() ? (*made)[used] : made->emplace_back();
      ++used;
      const v1::Site& site = held.columns->sites[column];
      if (evidence.site().op() != site.op() || evidence.site().layer() != site.layer())
        *evidence.mutable_site() = site;
      evidence.set_step(held.rows->step(held.row));
      evidence.mutable_scalar()->set_value(row.values[column]);
      evidence.set_sample_size(1);
      items->push_back({held.batch, held.source, &evidence, true});
    }
  }
}

void RunState::TellSites(const SiteStep& common, const std::vector<Held>& held,
                         const RankProgress& progress, const OnClose& on_close) {
  SiteStep site_step = common;
  for (size_t begin = 0; begin < held.size();) {
    site_step.site = held[begin].evidence->site();
    site_step.items.clear();
    site_step.missing_ranks.clear();
    site_step.cache.Clear();
    bool scalars = true, read = false;
    size_t end = begin, ranks = 0;  // sorted, so that distinct ones can be counted
    for (; end < held.size(); ++end) {
      const v1::Site& site = held[end].evidence->site();
      if (site.layer() != site_step.site.layer() || site.op() != site_step.site.op()) break;
      site_step.items.push_back({held[end].source, held[end].evidence});
      if (end == begin || held[end].source->rank() != held[end - 1].source->rank()) ++ranks;
      scalars &= held[end].evidence->has_scalar();
      read |= held[end].read;
    }
    begin = end;
    if (scalars && !read && sets_->Single(site_step.site)->read.empty()) continue;
    // No rank is missing if all known ranks are present and they form the whole world.
    const bool all = ranks == progress.seen() && ranks == common.world_size &&
                     held[end - 1].source->rank() < common.world_size;
    if (!all) {
      std::set<uint32_t> present;
      for (const Item& item : site_step.items) present.insert(item.source->rank());
      site_step.missing_ranks =
          progress.Missing(common.step, common.world_size, present, SiteStep::kNamedMissing);
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
  // If scalars came one by one, the last call of a step counts.
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
                     entries[begin].columns, rows, common.late, resumed_});
    begin = end;
  }
}

void RunState::CloseAll(const OnClose& on_close) {
  // The map is ordered by (attempt, role), whatever came first.
  for (auto& [key, group] : groups_) {
    while (!group.open.empty()) CloseStep(key, group, group.open.begin()->first, on_close);
    CloseLate(key, group, true, on_close);
  }
  TellOfLate(on_close);
}

int64_t RunState::closed_step() const {
  int64_t closed = -1;
  for (const auto& [key, group] : groups_) {
    if (key.first != newest_attempt_ && groups_.size() > 1) continue;
    closed = std::max(closed, group.closed);
    if (group.progress.awaits_unseen(group.world_size)) continue;  // its evidence may still arrive
    const int64_t slowest = group.progress.slowest();
    const bool all_done = slowest == std::numeric_limits<int64_t>::max();
    closed = std::max(closed, all_done ? group.newest_step : slowest);
  }
  return closed;
}

}  // namespace plumbline::rules

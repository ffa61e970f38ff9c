#include "rules/engine/run_state.h"

#include <algorithm>
#include <limits>

#include "rules/engine/refused.h"

namespace plumbline::rules {
namespace {

// Returns true for evidence of a measurement that a cadence or a budget schedules.
bool IsLook(const v1::Evidence& evidence) {
  return evidence.has_tensor() || evidence.has_update() || evidence.has_reduction() ||
         evidence.has_matmul() || evidence.has_logits() ||
         (evidence.has_routing() && evidence.site().op() != "loads");
}

const v1::Source& SourceOf(const v1::Batch& batch, const v1::SeriesRows& rows, int row) {
  return batch.sources(static_cast<int>(rows.source(rows.source_size() == 1 ? 0 : row)));
}

// Returns the last bytes of a file's name, from the beginning of a character on.
std::string EndOfFile(std::string_view file) {
  file.remove_prefix(file.size() - std::min(file.size(), RunSummary::SourceLine::kMostFile));
  while (!file.empty() && (file.front() & 0xC0) == 0x80) file.remove_prefix(1);
  return std::string(file);
}

}  // namespace

void RunState::Extend(int64_t step, bool first) {
  summary_.step_first = first ? step : std::min(summary_.step_first, step);
  summary_.step_last = first ? step : std::max(summary_.step_last, step);
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
  summary_.absent.clear();
  summary_.next_look = -1;
  for (const auto& [key, group] : groups_) {
    summary_.next_look = std::max(summary_.next_look, group.next_look);
    if (key.first != newest_attempt_ || group.progress.seen() >= group.world_size ||
        !group.endings.any_process())
      continue;
    RunSummary::AbsentRanks absent{.rollout = key.second == v1::ROLE_ROLLOUT,
                                   .world = group.world_size};
    absent.count = group.progress.Unseen(absent.world, absent.kMostRanges, &absent.ranges);
    if (absent.count > 0) summary_.absent.push_back(std::move(absent));
  }
  return summary_;
}

// Returns the step that holds a rank's evidence, among the open ones or the late ones.
OpenStep& RunState::StepOf(Group& group, const v1::Source& source, int64_t step) {
  if (step <= group.closed) return steps_.LateAt(group.steps, source.rank(), step);
  group.newest_step = std::max(group.newest_step, step);
  return steps_.At(group.steps, step);
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
  if (IsLook(evidence)) summary_.last_look = std::max(summary_.last_look, evidence.step());
  if (evidence.step() <= group->closed) CountLate(group, source, evidence.step(), evidence.site());
  StepOf(*group, source, evidence.step()).items.push_back({batch, &source, &evidence});
  if (evidence.has_scalar())
    group->endings.Value(source.rank(), evidence.step(), evidence.site(),
                         evidence.scalar().value());
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

RunState::RowSource RunState::QueryOf(const v1::Source& source) {
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
    if (&source != of.source) of = QueryOf(source);
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

RunState::Group* RunState::GoesStraight(const v1::Batch& batch) {
  const auto rows = StraightRowsOf(batch);
  if (!rows || rows->source->run() != summary_.run || rows->source->world_size() > 1)
    return nullptr;
  const auto known = groups_.find({rows->source->attempt(), rows->source->role()});
  if (known == groups_.end()) return nullptr;
  Group& group = known->second;
  const bool alone = group.progress.seen() == 1 && group.world_size <= 1 &&
                     group.progress.complete_through(rows->source->rank()) != kNever;
  const bool waits = !group.steps.open.empty() || !group.steps.late.empty();
  return alone && !waits && rows->first > group.closed ? &group : nullptr;
}

void RunState::CountStraight(const v1::Batch& batch) {
  const v1::Source& source = batch.sources(static_cast<int>(batch.series(0).source(0)));
  for (const v1::SeriesRows& rows : batch.series()) {
    const int last = rows.step_size() - 1;
    Extend(rows.step(0), ranks_seen_.empty());
    Extend(rows.step(last), false);
    Group& group = *QueryOf(source).group;
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

// A restart repeats steps. Open steps of earlier attempts, at or after the first step of the new
// attempt, are void; earlier steps can no longer grow.
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
    OpenSteps::Steps& steps = group.steps.open;
    for (auto step = steps.lower_bound(first); step != steps.end();) {
      SiteStep common = SiteStepOf(EndOf(key, group, step->first));
      common.late = true;
      OpenStep open = steps_.Take(group.steps, &steps, step++);
      // stored, not judged
      if (on_close.series) PassSeries(common, &open, sets_, resumed_, on_close);
    }
    while (!steps.empty()) CloseOldest(key, group, on_close);
    CloseLate(key, group, true, on_close);
  }
  if (on_close.superseded && !groups_.empty()) {
    RunEnds ends = EndsOf(newest_attempt_);
    ends.superseded = true;
    on_close.superseded(ends);
  }
  newest_attempt_ = attempt;
  // Evidence that still arrives for these attempts goes to separate groups (EarlierGroupOf).
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
  if (declaration.file().empty() || summary_.lines.size() >= RunSummary::kMostLines) return;
  const auto [line, fresh] = summary_.lines.try_emplace(site);
  if (fresh) line->second = {EndOfFile(declaration.file()), declaration.line()};
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
    if (progress.has_next_look()) group.next_look = std::max(group.next_look, progress.next_look());
    if (progress.finished()) {
      group.progress.Finish(source.rank());
      group.endings.Stated(source, progress);
    }
    if (!group.steps.late.empty()) steps_.Touch(group.steps, source.rank());
    group.newest_step = std::max(group.newest_step, group.progress.newest_step());
  }
  steps_.Charge(*batch);
  for (auto& [key, group] : groups_) {
    if (key.first < newest_attempt_) {
      CloseLate(key, group, true, on_close);  // no other rank joins this step, so it need not wait
      continue;
    }
    if (&group == straight) {
      const auto one = [&, &from = key, &of = group](int64_t step, OpenStep* open, RowPlan* plan) {
        PassStep(EndOf(from, of, step), of, open, plan, on_close);
      };
      rows_.CloseStraight(EndOf(key, group, 0), &group.plans, batch, *sets_, resumed_,
                          &group.closed, one, on_close);
    }
    CloseReady(key, group, on_close);
    // The batch changes nothing for the other ranks.
    for (const uint32_t rank : steps_.Touched(group.steps))
      CloseLateOf(key, group, rank, false, on_close);
  }
  steps_.EndBatch();
  std::erase_if(groups_, [&](const auto& of) { return of.first.first < newest_attempt_; });
  last_words_.clear();
  if (options_.max_bytes > 0) MakeRoom(options_.max_bytes, on_close);
  ReportLate(on_close);
}

}  // namespace plumbline::rules

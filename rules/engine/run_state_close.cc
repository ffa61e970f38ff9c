// When a step of a run is complete and how it is closed, evidence that arrives after that, and the
// ranks over which a host closes steps.
#include <algorithm>
#include <iterator>
#include <limits>
#include <vector>

#include "rules/engine/refused.h"
#include "rules/engine/run_state.h"

namespace plumbline::rules {

bool RunState::FarBack(const Group& group, int64_t step) const {
  return group.newest_step > step && group.newest_step - step >= options_.window_steps;
}

bool RunState::Ready(const Group& group, int64_t step) const {
  // A group without progress reports (lone dumps) is closed only at the end.
  if (!group.progress.any()) return false;
  const bool far_back = !options_.hosted && FarBack(group, step);
  // Unseen ranks are all alike, so only seen ranks are examined one by one.
  if (group.progress.awaits_unseen(group.world_size) && !far_back) return false;
  return group.progress.Covered(step, far_back);
}

void RunState::CloseReady(const GroupKey& key, Group& group, const OnClose& on_close) {
  while (!group.steps.open.empty() && Ready(group, group.steps.open.begin()->first))
    CloseOldest(key, group, on_close);
}

StepEnd RunState::EndOf(const GroupKey& key, const Group& group, int64_t step) const {
  return {summary_.run, key.first, key.second, step, group.world_size};
}

void RunState::CloseOldest(const GroupKey& key, Group& group, const OnClose& on_close) {
  auto node = steps_.TakeOldest(group.steps);
  OpenStep& open = node.mapped();
  group.closed = node.key();
  const StepEnd end = EndOf(key, group, node.key());
  PassStep(end, group, &open, rows_.PlanOf(end, &group.plans, open), on_close);
  steps_.Reuse(std::move(node));
}

void RunState::PassStep(const StepEnd& end, const Group& group, OpenStep* open, RowPlan* plan,
                        const OnClose& on_close) {
  if (plan != nullptr) {
    rows_.Close(end, *open, plan, group.progress, resumed_, on_close);
  } else {
    const SiteStep common = SiteStepOf(end);
    const std::vector<HeldItem> held = ItemsInOrder(*open, &made_);
    if (!held.empty()) PassSites(common, held, group.progress, sets_, on_close);
    if (on_close.series) PassSeries(common, open, sets_, resumed_, on_close);
  }
  on_close.step(end);
}

void RunState::CloseAll(const OnClose& on_close) {
  // The map is ordered by (attempt, role), not by arrival.
  for (auto& [key, group] : groups_) {
    while (!group.steps.open.empty()) CloseOldest(key, group, on_close);
    CloseLate(key, group, true, on_close);
  }
  ReportLate(on_close);
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

// Closes the oldest steps of the group that holds the most bytes, until at most `bytes` are open.
void RunState::MakeRoom(uint64_t bytes, const OnClose& on_close) {
  while (steps_.bytes() > bytes) {
    const auto largest = std::max_element(
        groups_.begin(), groups_.end(),
        [](const auto& a, const auto& b) { return a.second.steps.bytes < b.second.steps.bytes; });
    auto& [key, group] = *largest;
    if (!group.steps.late.empty()) {
      CloseLate(key, group, true, on_close);
      continue;
    }
    ++closed_for_room_;
    CloseOldest(key, group, on_close);
    group.progress.CloseOver(group.closed, LateCause::kNoRoom);
  }
}

// ---- evidence after that
// -------------------------------------------------------------------------------

// Finds what processes send with their goodbye for a step that they never ended: the rest of a
// loop's times, an open span. No step misses it, so it is not late.
void RunState::FindLastWords(const v1::Batch& batch) {
  last_words_.clear();
  for (const v1::Progress& progress : batch.progress()) {
    if (progress.finished() && progress.any_step())
      last_words_[&batch.sources(static_cast<int>(progress.source()))] =
          progress.complete_through();
  }
}

// ---- runs that are over
// --------------------------------------------------------------------------

void RunState::NoteStream(uint64_t stream_id) {
  constexpr size_t kMostStreams = 200'000;
  if (stream_id == last_stream_ || stream_id == 0) return;
  last_stream_ = stream_id;
  if (streams_.size() >= kMostStreams) streams_.clear();
  streams_.insert(stream_id);
}

bool RunState::MayReturn() const {
  return std::any_of(groups_.begin(), groups_.end(), [](const auto& of) {
    const auto states = of.second.progress.States();
    return std::any_of(states.begin(), states.end(), [&](const RankProgress::State& state) {
      return !of.second.progress.finished(state.rank);
    });
  });
}

// ---- earlier attempts --------------------------------------------------------------------------

// Records that the attempt has a step as early as `first`.
void RunState::NoteFirst(uint32_t attempt, int64_t first) {
  constexpr size_t kMostAttempts = 1024;  // beyond it the earliest attempts are forgotten
  const auto known = firsts_.lower_bound(attempt);
  if (known != firsts_.end() && known->second <= first) return;
  const auto entry = firsts_.insert_or_assign(attempt, first).first;
  while (entry != firsts_.begin() && std::prev(entry)->second >= first)
    firsts_.erase(std::prev(entry));
  if (firsts_.size() > kMostAttempts) firsts_.erase(firsts_.begin());
}

// Returns the first step of `attempt` that a later attempt repeated or began before.
int64_t RunState::SupersededFrom(uint32_t attempt) const {
  const auto later = firsts_.upper_bound(attempt);
  return later == firsts_.end() ? std::numeric_limits<int64_t>::max() : later->second;
}

// Returns the earliest step of this attempt in the batch; the largest int64 if it has none.
int64_t RunState::FirstStepOf(const v1::Batch& batch, uint32_t attempt) const {
  int64_t first = std::numeric_limits<int64_t>::max();
  const auto take = [&](uint32_t index, int64_t step) {
    if (step >= first) return;  // steps mostly ascend
    const v1::Source& source = batch.sources(static_cast<int>(index));
    if (source.attempt() == attempt && source.run() == summary_.run) first = step;
  };
  for (const v1::Evidence& evidence : batch.evidence()) take(evidence.source(), evidence.step());
  for (const v1::SeriesRows& rows : batch.series()) {
    for (int row = 0; row < rows.step_size(); ++row)
      take(rows.source(rows.source_size() == 1 ? 0 : row), rows.step(row));
  }
  // A process that has not begun a step sends no step, or step 0.
  for (const v1::Progress& progress : batch.progress()) {
    if (progress.any_step() || progress.newest_step() > 0)
      take(progress.source(), progress.newest_step());
  }
  return first;
}

// Holds late evidence of an attempt after the next one has begun, while its batch is processed. All
// steps of that attempt were closed then.
RunState::Group& RunState::EarlierGroupOf(const v1::Source& source) {
  Group& group = groups_[{source.attempt(), source.role()}];
  group.closed = std::numeric_limits<int64_t>::max();
  group.world_size = std::max(group.world_size, source.world_size());
  group.progress.Leave(source.rank(), LateCause::kNextAttempt);
  return group;
}

// Counts a late item. If `group` is null, a later attempt has replaced its attempt, and the item is
// a loss.
void RunState::CountLate(const Group* group, const v1::Source& source, int64_t step,
                         const v1::Site& site) {
  if (group == nullptr) {
    v1::Loss loss;
    loss.set_cause(kSupersededLoss);
    *loss.mutable_site() = site;
    loss.set_count(1);
    loss.set_step_first(step);
    loss.set_step_last(step);
    return CountLoss(source, loss);
  }
  const auto ended = last_words_.find(&source);
  if (ended != last_words_.end() && step > ended->second) return;
  const char* cause = LossCauseOf(group->progress.late_cause(source.rank()));
  const auto [entry, fresh] = summary_.late.try_emplace(cause);
  RunSummary::LateCount& late = entry->second;
  late.step_first = fresh ? step : std::min(late.step_first, step);
  late.step_last = fresh ? step : std::max(late.step_last, step);
  ++late.count;
  KeepRank(&late.ranks, source.rank());
  ++late.sites[{site.layer(), site.op()}];
  ++fresh_late_[cause];
}

// Passes on late evidence, rank by rank, once the rank has reported that a step is complete or that
// nothing more follows, or if more than a window of steps waits. `all`: now.
void RunState::CloseLate(const GroupKey& key, Group& group, bool all, const OnClose& on_close) {
  for (auto at = group.steps.late.begin(); at != group.steps.late.end();) {
    const uint32_t rank = (at++)->first;
    CloseLateOf(key, group, rank, all, on_close);
  }
}

void RunState::CloseLateOf(const GroupKey& key, Group& group, uint32_t rank, bool all,
                           const OnClose& on_close) {
  const auto at = group.steps.late.find(rank);
  if (at == group.steps.late.end()) return;
  auto& steps = at->second;
  const bool over = all || group.progress.finished(rank);
  const int64_t through = group.progress.complete_through(rank);
  const auto window = static_cast<size_t>(options_.window_steps);
  while (!steps.empty() && (over || steps.begin()->first <= through || steps.size() > window)) {
    const int64_t step = steps.begin()->first;
    OpenStep open = steps_.Take(group.steps, &steps, steps.begin());
    PassLate(EndOf(key, group, step), std::move(open), group, on_close);
  }
  if (steps.empty()) group.steps.late.erase(at);
}

void RunState::PassLate(const StepEnd& end, OpenStep open, const Group& group,
                        const OnClose& on_close) {
  SiteStep step = SiteStepOf(end);
  step.late = true;
  std::deque<v1::Evidence> made;
  PassSites(step, ItemsInOrder(open, &made), group.progress, sets_, on_close);
  if (on_close.series) PassSeries(step, &open, sets_, resumed_, on_close);
  late_reported_ = true;
}

// Also calls `late` if nothing new arrived, but a step that had waited to be complete was passed
// on.
void RunState::ReportLate(const OnClose& on_close) {
  if (on_close.late) {
    for (const auto& [cause, items] : fresh_late_) on_close.late(cause, items);
    if (fresh_late_.empty() && (late_reported_ || !fresh_lost_.empty())) on_close.late("", 0);
  }
  if (on_close.lost) {
    for (const auto& [cause, items] : fresh_lost_) on_close.lost(cause, items);
  }
  fresh_lost_.clear();
  fresh_late_.clear();
  late_reported_ = false;
}

void RunState::MarkGone(const v1::Source& source, LateCause cause, const OnClose& on_close,
                        EndKind way) {
  if (source.attempt() < newest_attempt_) return;
  Group& group = GroupOf(source);
  group.progress.Leave(source.rank(), cause);
  group.endings.Gone(source, way);
  const GroupKey key{source.attempt(), source.role()};
  CloseReady(key, group, on_close);
  CloseLateOf(key, group, source.rank(), false, on_close);
  ReportLate(on_close);
}

void RunState::MarkAbsent(const v1::Source& source, const OnClose& on_close) {
  if (source.attempt() < newest_attempt_) return;
  const GroupKey key{source.attempt(), source.role()};
  Group& group = groups_[key];
  group.world_size = std::max(group.world_size, source.world_size());
  group.progress.LeaveUnseen();
  CloseReady(key, group, on_close);
}

void RunState::CloseThrough(uint32_t attempt, v1::Role role, int64_t through,
                            const OnClose& on_close) {
  const auto found = groups_.find({attempt, role});
  if (found == groups_.end()) return;
  auto& [key, group] = *found;
  group.progress.CloseOver(through, LateCause::kRankSlow);
  const OpenSteps::Steps& open = group.steps.open;
  while (!open.empty() && open.begin()->first <= through) CloseOldest(key, group, on_close);
  CloseReady(key, group, on_close);
}

std::vector<Lag> RunState::Lagging() const {
  std::vector<Lag> lags;
  for (const auto& [key, group] : groups_) {
    if (group.steps.open.empty() || !FarBack(group, group.steps.open.begin()->first)) continue;
    Lag& lag = lags.emplace_back();
    lag.attempt = key.first;
    lag.role = key.second;
    lag.oldest = group.steps.open.begin()->first;
    lag.through = group.newest_step - options_.window_steps;
    lag.ranks = group.progress.After(lag.through);
    lag.unseen = group.progress.awaits_unseen(group.world_size);
  }
  return lags;
}

RunEnds RunState::EndsOf(uint32_t attempt) const {
  RunEnds run;
  run.attempt = attempt;
  run.reported = options_.hosted;
  run.window_steps = options_.window_steps;
  for (const auto& [key, group] : groups_) {
    if (key.first != attempt || !group.progress.any()) continue;
    const size_t first = run.ends.size();
    group.endings.List(key.second, &run.ends);
    for (size_t i = first; i < run.ends.size(); ++i) {
      ProcessEnd& end = run.ends[i];
      end.newest_step = group.progress.newest_step_of(end.rank);
      end.complete_through = group.progress.complete_through(end.rank);
    }
  }
  return run;
}

RunEnds RunState::Ends(bool over) const {
  RunEnds run = EndsOf(newest_attempt_);
  run.over = over;
  return run;
}

std::vector<GroupProgress> RunState::Groups() const {
  std::vector<GroupProgress> list;
  for (const auto& [key, group] : groups_) {
    if (key.first != newest_attempt_) continue;
    GroupProgress& progress = list.emplace_back();
    progress.attempt = key.first;
    progress.role = key.second;
    progress.world_size = group.world_size;
    if (!group.steps.open.empty()) progress.oldest_open = group.steps.open.begin()->first;
    progress.awaits_unseen = group.progress.awaits_unseen(group.world_size);
    progress.ranks = group.progress.States();
  }
  return list;
}

// ---- what is stored ----------------------------------------------------------------------------

uint32_t RunState::Persist(Archive& archive) {
  // 3: late steps; 4: endings of processes; 6: returns; 7: series; 8: a run that was forgotten; 9:
  // ends; 10: lines and looks
  const uint32_t version = archive.Version(kLinesKept, 3);
  if (!archive.reading()) Summarize();
  archive(summary_, ranks_seen_, declared_, newest_attempt_, closed_for_room_);
  if (version >= kReturnsKept) archive(firsts_, over_, streams_);
  if (version >= kResumedKept) archive(resumed_);
  if (version >= kEndsKept) archive(summary_.ends);
  if (version >= kLinesKept) archive(summary_.lines, summary_.last_look);
  if (archive.reading()) {
    for (const auto& [site, ranks] : declared_) kept_ranks_ += ranks.size();
    for (const auto& [site, loss] : summary_.losses) kept_ranks_ += loss.ranks.size();
    for (const auto& [cause, late] : summary_.late) kept_ranks_ += late.ranks.size();
  }
  std::vector<GroupKey> keys;
  for (const auto& [key, group] : groups_) keys.push_back(key);
  archive(keys);
  for (const GroupKey& key : keys) {
    if (!archive.ok()) return version;
    Group& group = groups_[key];
    archive(group.world_size, group.progress, group.closed, group.newest_step);
    steps_.Persist(group.steps, sets_, archive);
    if (archive.ok() && version >= 4) archive(group.endings);
    if (archive.ok() && version >= kLinesKept) archive(group.next_look);
  }
  return version;
}

}  // namespace plumbline::rules

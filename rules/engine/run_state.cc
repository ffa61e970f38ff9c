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

}  // namespace

RunState::Group& RunState::GroupOf(const v1::Source& source) {
  Group& group = groups_[{source.attempt(), source.role()}];
  group.world_size = std::max(group.world_size, source.world_size());
  group.ranks[source.rank()];
  return group;
}

void RunState::Hold(const std::shared_ptr<const v1::Batch>& batch, const v1::Evidence& evidence) {
  const v1::Source& source = batch->sources(static_cast<int>(evidence.source()));
  Group& group = GroupOf(source);
  Extend(evidence.step(), summary_);
  auto& site = summary_.sites[{evidence.site().layer(), evidence.site().op()}];
  ++site.evidence;
  if (ranks_seen_.insert(source.rank()).second) {
    summary_.ranks.assign(ranks_seen_.begin(), ranks_seen_.end());
  }
  const bool superseded = source.attempt() < newest_attempt_;
  if (superseded || evidence.step() <= group.closed) {
    v1::Loss late;
    late.set_cause(superseded ? "superseded" : "late");
    *late.mutable_site() = evidence.site();
    late.set_count(1);
    late.set_step_first(evidence.step());
    late.set_step_last(evidence.step());
    CountLoss(source, late);
    return;
  }
  group.newest_step = std::max(group.newest_step, evidence.step());
  group.open[evidence.step()].push_back({batch, &source, &evidence});
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
  for (const v1::Progress& progress : batch->progress())
    first = std::min(first, progress.newest_step());
  // Only a batch that speaks of a step can say where the new attempt begins.
  if (first == std::numeric_limits<int64_t>::max()) return;
  for (auto& [key, group] : groups_) {
    if (key.first >= attempt) continue;
    group.open.erase(group.open.lower_bound(first), group.open.end());
    while (!group.open.empty()) CloseStep(key, group, group.open.begin()->first, on_close);
    for (auto& [rank, state] : group.ranks) state.done = true;
  }
  newest_attempt_ = attempt;
}

void RunState::Take(const std::shared_ptr<const v1::Batch>& batch, const OnClose& on_close) {
  SupersedeOlder(batch, on_close);
  const auto ours = [&](uint32_t index) {
    return batch->sources(static_cast<int>(index)).run() == summary_.run;
  };
  for (const v1::SiteDeclaration& declaration : batch->declarations()) {
    if (!ours(declaration.source())) continue;
    const std::pair<std::string, std::string> site{declaration.site().layer(),
                                                   declaration.site().op()};
    auto [entry, fresh] = summary_.sites.try_emplace(site);
    auto& ranks = declared_[site];
    ranks.insert(batch->sources(static_cast<int>(declaration.source())).rank());
    entry->second.declared_step = ranks.size() == 1
                                      ? declaration.step()
                                      : std::min(entry->second.declared_step, declaration.step());
    entry->second.declared_ranks = static_cast<uint32_t>(ranks.size());
    entry->second.kind = declaration.kind();
  }
  for (const v1::Evidence& evidence : batch->evidence()) {
    if (ours(evidence.source())) Hold(batch, evidence);
  }
  for (const v1::Loss& loss : batch->losses()) {
    if (ours(loss.source())) CountLoss(batch->sources(static_cast<int>(loss.source())), loss);
  }
  for (const v1::Progress& progress : batch->progress()) {
    if (!ours(progress.source())) continue;
    const v1::Source& source = batch->sources(static_cast<int>(progress.source()));
    Group& group = GroupOf(source);
    Rank& rank = group.ranks[source.rank()];
    rank.said_progress = true;
    if (progress.any_step())
      rank.complete_through = std::max(rank.complete_through, progress.complete_through());
    rank.newest_step = std::max(rank.newest_step, progress.newest_step());
    rank.done |= progress.finished();
    group.newest_step = std::max(group.newest_step, rank.newest_step);
  }
  for (auto& [key, group] : groups_) CloseReady(key, group, on_close);
}

void RunState::MarkGone(const v1::Source& source, const OnClose& on_close) {
  Group& group = GroupOf(source);
  group.ranks[source.rank()].done = true;
  CloseReady({source.attempt(), source.role()}, group, on_close);
}

// Nothing more can come from `rank` for `step`.
bool RunState::Covered(const Group& group, uint32_t rank, int64_t step) const {
  const Rank& state = group.ranks.at(rank);
  if (state.done || state.complete_through >= step) return true;
  // Only a rank without backlog may be closed over: one that is merely slow to send is waited for.
  const bool backlog =
      state.newest_step != kNever && state.newest_step > state.complete_through + 1;
  return FarBehind(group, step) && !backlog;
}

bool RunState::FarBehind(const Group& group, int64_t step) const {
  return group.newest_step != kNever && group.newest_step - step >= window_;
}

bool RunState::Ready(const Group& group, int64_t step) const {
  // A group in which nobody reports progress (lone dumps) is closed at the end only.
  const bool any_progress =
      std::any_of(group.ranks.begin(), group.ranks.end(),
                  [](const auto& rank) { return rank.second.said_progress || rank.second.done; });
  if (!any_progress) return false;
  // Ranks never heard of are all alike: only those heard of are looked at one by one.
  if (group.ranks.size() < group.world_size && !FarBehind(group, step)) return false;
  return std::all_of(group.ranks.begin(), group.ranks.end(),
                     [&](const auto& rank) { return Covered(group, rank.first, step); });
}

void RunState::CloseReady(const GroupKey& key, Group& group, const OnClose& on_close) {
  while (!group.open.empty() && Ready(group, group.open.begin()->first)) {
    CloseStep(key, group, group.open.begin()->first, on_close);
  }
}

void RunState::CloseStep(const GroupKey& key, Group& group, int64_t step, const OnClose& on_close) {
  std::vector<Held> held = std::move(group.open.begin()->second);
  group.open.erase(group.open.begin());
  group.closed = step;
  std::stable_sort(held.begin(), held.end(), [](const Held& a, const Held& b) {
    return JudgingOrder(*a.source, *a.evidence) < JudgingOrder(*b.source, *b.evidence);
  });
  std::vector<uint32_t> incomplete;  // ranks that were closed over
  for (uint32_t rank = 0; rank < group.world_size; ++rank) {
    const auto found = group.ranks.find(rank);
    if (found == group.ranks.end() || found->second.complete_through < step)
      incomplete.push_back(rank);
  }
  for (size_t begin = 0; begin < held.size();) {
    SiteStep site_step;
    site_step.run = summary_.run;
    site_step.attempt = key.first;
    site_step.role = key.second;
    site_step.step = step;
    site_step.site = held[begin].evidence->site();
    site_step.world_size = group.world_size;
    std::set<uint32_t> present;
    size_t end = begin;
    for (; end < held.size(); ++end) {
      const v1::Site& site = held[end].evidence->site();
      if (site.layer() != site_step.site.layer() || site.op() != site_step.site.op()) break;
      site_step.items.push_back({held[end].source, held[end].evidence});
      present.insert(held[end].source->rank());
    }
    for (uint32_t rank : incomplete) {
      if (!present.contains(rank)) site_step.missing_ranks.push_back(rank);
    }
    on_close.site(site_step);
    begin = end;
  }
  on_close.step({summary_.run, key.first, key.second, step, group.world_size});
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
    int64_t slowest = std::numeric_limits<int64_t>::max();
    for (const auto& [rank, state] : group.ranks) {
      if (!state.done) slowest = std::min(slowest, state.complete_through);
    }
    const bool all_done = slowest == std::numeric_limits<int64_t>::max();
    closed = std::max({closed, group.closed, all_done ? group.newest_step : slowest});
  }
  return closed;
}

}  // namespace plumbline::rules

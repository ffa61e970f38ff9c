#include "rules/engine/rank_progress.h"

#include <algorithm>

namespace plumbline::rules {

const char* LossCauseOf(LateCause cause) {
  switch (cause) {
    case LateCause::kRankSlow:
      return "late-rank-slow";
    case LateCause::kStreamBroken:
      return "late-stream-broken";
    case LateCause::kServerAway:
      return "late-server-away";
    case LateCause::kRankSilent:
      return "late-rank-silent";
    case LateCause::kNeverCame:
      return "late-never-came";
    case LateCause::kNoRoom:
      return "late-no-room";
    case LateCause::kNextAttempt:
      return "late-next-attempt";
    case LateCause::kUnknown:
      break;
  }
  return "late";
}

RankProgress::Rank& RankProgress::Entry(uint32_t rank) {
  const auto [entry, fresh] = ranks_.try_emplace(rank);
  if (fresh) {
    Place(rank, entry->second);
    FindUnseen();
    if (unseen_gone_) entry->second.cause = LateCause::kNeverCame;
  }
  return entry->second;
}

void RankProgress::Place(uint32_t rank, const Rank& state) {
  (state.waited_for() ? waiting_ : done_).emplace(state.complete_through, rank);
  if (state.waited_for() && state.backlog()) backlogged_.emplace(state.complete_through, rank);
}

void RankProgress::Unplace(uint32_t rank, const Rank& state) {
  (state.waited_for() ? waiting_ : done_).erase({state.complete_through, rank});
  backlogged_.erase({state.complete_through, rank});
}

// first_unseen_ only grows, so that all calls together cost no more than the number of ranks seen.
void RankProgress::FindUnseen() {
  for (auto next = ranks_.find(first_unseen_); next != ranks_.end() && next->first == first_unseen_;
       ++next) {
    ++first_unseen_;
  }
}

void RankProgress::Hear(uint32_t rank) {
  Rank& state = Entry(rank);
  if (!state.gone) return;
  Unplace(rank, state);
  state.gone = false;
  Place(rank, state);
}

void RankProgress::Await(uint32_t rank) {
  Rank& state = Entry(rank);
  Unplace(rank, state);
  state.awaited = true;
  Place(rank, state);
}

void RankProgress::Advance(uint32_t rank, int64_t complete_through, int64_t newest_step) {
  Rank& state = Entry(rank);
  any_ = true;
  newest_step_ = std::max(newest_step_, newest_step);
  if (complete_through <= state.complete_through && newest_step <= state.newest_step) return;
  Unplace(rank, state);
  state.newest_step = std::max(state.newest_step, newest_step);
  state.complete_through = std::max(state.complete_through, complete_through);
  Place(rank, state);
}

void RankProgress::Finish(uint32_t rank) {
  Rank& state = Entry(rank);
  any_ = true;
  Unplace(rank, state);
  state.done = true;
  Place(rank, state);
}

void RankProgress::Leave(uint32_t rank, LateCause cause) {
  Rank& state = Entry(rank);
  any_ = true;
  if (state.done) return;
  Unplace(rank, state);
  state.gone = true;
  state.cause = cause;
  Place(rank, state);
}

void RankProgress::LeaveUnseen() {
  any_ = true;
  unseen_gone_ = true;
}

void RankProgress::CloseOver(int64_t through, LateCause cause) {
  for (const auto& [complete_through, rank] : waiting_) {
    if (complete_through >= through) break;
    ranks_.at(rank).cause = cause;
  }
}

int64_t RankProgress::complete_through(uint32_t rank) const {
  const auto known = ranks_.find(rank);
  return known == ranks_.end() ? kNever : known->second.complete_through;
}

int64_t RankProgress::newest_step_of(uint32_t rank) const {
  const auto known = ranks_.find(rank);
  return known == ranks_.end() ? kNever : known->second.newest_step;
}

bool RankProgress::finished(uint32_t rank) const {
  const auto known = ranks_.find(rank);
  return known != ranks_.end() && known->second.done;
}

LateCause RankProgress::late_cause(uint32_t rank) const {
  const auto known = ranks_.find(rank);
  return known == ranks_.end() ? LateCause::kUnknown : known->second.cause;
}

uint64_t RankProgress::Unseen(uint32_t world, size_t most,
                              std::vector<std::pair<uint32_t, uint32_t>>* ranges) const {
  uint64_t unseen = 0;
  uint32_t next = 0;
  const auto add = [&](uint32_t until) {
    if (until <= next) return;
    unseen += until - next;
    if (ranges->size() < most) ranges->emplace_back(next, until - 1);
  };
  for (const auto& [rank, state] : ranks_) {
    if (rank >= world) break;
    add(rank);
    next = rank + 1;
  }
  add(world);
  return unseen;
}

std::vector<uint32_t> RankProgress::After(int64_t step) const {
  std::vector<uint32_t> ranks;
  for (const auto& [complete_through, rank] : waiting_) {
    if (complete_through >= step) break;
    ranks.push_back(rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::vector<RankProgress::State> RankProgress::States() const {
  std::vector<State> states;
  for (const auto& [rank, state] : ranks_)
    states.push_back({rank, state.complete_through, state.waited_for()});
  return states;
}

bool RankProgress::Covered(int64_t step, bool far_back) const {
  const Order& held_by = far_back ? backlogged_ : waiting_;
  return held_by.empty() || held_by.begin()->first >= step;
}

std::vector<uint32_t> RankProgress::Missing(int64_t step, uint32_t world,
                                            const std::set<uint32_t>& present, size_t most) const {
  std::vector<uint32_t> ranks;
  if (world == 0) return ranks;
  for (const Order* order : {&waiting_, &done_}) {
    for (const auto& [complete_through, rank] : *order) {
      if (complete_through >= step || ranks.size() >= most) break;
      if (!present.contains(rank)) ranks.push_back(rank);
    }
  }
  auto seen = ranks_.upper_bound(first_unseen_);
  for (uint32_t rank = first_unseen_; rank < world && ranks.size() < most; ++rank) {
    if (seen != ranks_.end() && seen->first == rank) {
      if (++seen; rank - first_unseen_ > 2 * most) break;  // at least one is named by now
      continue;
    }
    ranks.push_back(rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

void RankProgress::Persist(Archive& a) {
  a(ranks_, waiting_, newest_step_, any_, unseen_gone_);
  if (!a.reading()) return;
  waiting_.clear();
  for (const auto& [rank, state] : ranks_) Place(rank, state);
  FindUnseen();
}

}  // namespace plumbline::rules

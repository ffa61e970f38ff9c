#include "rules/engine/rank_progress.h"

#include <algorithm>

namespace plumbline::rules {

RankProgress::Rank& RankProgress::Entry(uint32_t rank) {
  const auto [entry, fresh] = ranks_.try_emplace(rank);
  if (fresh) waiting_.emplace(kNever, rank);
  return entry->second;
}

void RankProgress::Advance(uint32_t rank, int64_t complete_through, int64_t newest_step) {
  Rank& state = Entry(rank);
  any_ = true;
  state.newest_step = std::max(state.newest_step, newest_step);
  newest_step_ = std::max(newest_step_, newest_step);
  if (complete_through <= state.complete_through) return;
  if (!state.done) {
    auto entry = waiting_.extract({state.complete_through, rank});
    entry.value().first = complete_through;
    waiting_.insert(std::move(entry));
  }
  state.complete_through = complete_through;
}

void RankProgress::Finish(uint32_t rank) {
  Rank& state = Entry(rank);
  any_ = true;
  state.done = true;
  waiting_.erase({state.complete_through, rank});
}

void RankProgress::FinishAll() {
  for (auto& [rank, state] : ranks_) state.done = true;
  any_ |= !ranks_.empty();
  waiting_.clear();
}

bool RankProgress::Covered(int64_t step, bool far_behind) const {
  for (const auto& [complete_through, rank] : waiting_) {
    if (complete_through >= step) return true;
    if (!far_behind || ranks_.at(rank).backlog()) return false;
  }
  return true;
}

std::vector<uint32_t> RankProgress::Incomplete(int64_t step, uint32_t world) const {
  std::vector<uint32_t> ranks;
  auto known = ranks_.begin();
  for (uint32_t rank = 0; rank < world; ++rank) {
    while (known != ranks_.end() && known->first < rank) ++known;
    const bool complete =
        known != ranks_.end() && known->first == rank && known->second.complete_through >= step;
    if (!complete) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace plumbline::rules

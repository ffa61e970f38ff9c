#include "audit/readers/nccl_log/joined_calls.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace plumbline::audit {

bool NcclJoined::agrees() const {
  return std::all_of(ranks.begin(), ranks.end(),
                     [&](const auto& rank) { return rank.second == ranks.begin()->second; });
}

void NcclJoinedCalls::Add(uint32_t rank, const NcclCall& call, size_t ranks, size_t most_open) {
  Place& place = places_[rank];
  const bool same = place.number == call.number;
  place = {call.number, same ? place.ordinal + 1 : 0};
  const Key key{place.number, place.ordinal};
  if (floored_ && key <= floor_) {
    ++too_late_;
    return;
  }
  const auto [at, fresh] = open_.try_emplace(key);
  NcclJoined& joined = at->second;
  joined.number = key.first;
  joined.ordinal = key.second;
  const NcclStatement statement{call.collective, call.count, call.datatype, call.op, call.root};
  open_ranks_ += joined.ranks.try_emplace(rank, statement).second ? 1 : 0;
  if (joined.ranks.size() >= ranks) Close(at);
  while (open_.size() > most_open || open_ranks_ > kMostOpenRanks) {
    floored_ = true;
    floor_ = open_.begin()->first;
    Close(open_.begin());
  }
}

void NcclJoinedCalls::Close(std::map<Key, NcclJoined>::iterator at) {
  NcclJoined& joined = at->second;
  open_ranks_ -= joined.ranks.size();
  compared_ += joined.ranks.size() > 1 ? 1 : 0;
  constexpr size_t kMostKinds = 48;
  if (!joined.agrees()) {
    ++differing_;
    if (different_.size() < kMostKept) different_.push_back(std::move(joined));
  } else {
    // Calls that differ only in their counts have the same kind.
    NcclStatement kind = joined.ranks.begin()->second;
    kind.count = 0;
    const bool new_kind = kinds_.size() < kMostKinds && kinds_.insert(kind).second;
    if (new_kind || kept_.size() < kFirstKept) kept_.push_back(std::move(joined));
  }
  open_.erase(at);
}

std::vector<NcclJoined> NcclJoinedCalls::Take() {
  while (!open_.empty()) Close(open_.begin());
  std::vector<NcclJoined> all = std::move(kept_);
  all.insert(all.end(), std::make_move_iterator(different_.begin()),
             std::make_move_iterator(different_.end()));
  std::sort(all.begin(), all.end(), [](const NcclJoined& a, const NcclJoined& b) {
    return std::pair(a.number, a.ordinal) < std::pair(b.number, b.ordinal);
  });
  return all;
}

}  // namespace plumbline::audit

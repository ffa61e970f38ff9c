#include "server/stream/claimed_ranks.h"

#include "absl/strings/str_cat.h"
#include "server/stream/rank_key.h"

namespace plumbline::server {
namespace {

bool SameRank(const v1::Source& a, const v1::Source& b) {
  return a.rank() == b.rank() && a.role() == b.role() && a.run() == b.run();
}

}  // namespace

const v1::Source* ClaimedRanks::Find(const v1::Source& source) {
  if (next_ >= list_.size()) next_ = 0;
  if (next_ < list_.size() && SameRank(list_[next_], source)) return &list_[next_++];
  const auto found = places_.find(RankKey(source));
  if (found == places_.end()) return nullptr;
  next_ = found->second + 1;
  return &list_[found->second];
}

bool ClaimedRanks::Has(const v1::Source& source) {
  const v1::Source* known = Find(source);
  return known != nullptr && known->attempt() >= source.attempt();
}

std::shared_ptr<const std::vector<v1::Source>> ClaimedRanks::Shared() {
  if (shared_ == nullptr) shared_ = std::make_shared<const std::vector<v1::Source>>(list_);
  return shared_;
}

std::optional<v1::Source> ClaimedRanks::Add(const v1::Source& source) {
  shared_ = nullptr;
  const auto [place, fresh] = places_.emplace(RankKey(source), list_.size());
  if (fresh) {
    list_.push_back(source);
    runs_.insert(source.run());
    return std::nullopt;
  }
  v1::Source earlier = source;
  std::swap(earlier, list_[place->second]);
  return earlier;
}

}  // namespace plumbline::server

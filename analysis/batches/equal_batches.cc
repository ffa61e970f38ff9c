#include "analysis/batches/equal_batches.h"

#include <utility>

namespace plumbline::analysis {

void EqualBatches::Take(uint32_t attempt, int64_t step,
                        const std::map<uint32_t, uint64_t>& digests) {
  bool same_ranks = digests.size() == newest_.size();
  for (const auto& [rank, digest] : digests) same_ranks = same_ranks && newest_.contains(rank);
  if (attempt != attempt_ || !same_ranks) {
    steps_.clear();
    newest_.clear();
  }
  attempt_ = attempt;
  steps_.push_back(step);
  for (const auto& [rank, digest] : digests) newest_[rank].push_back(digest);
  if (steps_.size() <= kSteps) return;
  steps_.pop_front();
  for (auto& [rank, kept] : newest_) kept.pop_front();
}

std::vector<std::vector<uint32_t>> EqualBatches::Same() const {
  if (steps_.size() < kSteps) return {};
  std::map<std::pair<double, std::deque<uint64_t>>, std::vector<uint32_t>> alike;
  for (const auto& [rank, digests] : newest_) {
    const auto group = groups_.find(rank);
    const std::set<uint64_t> values(digests.begin(), digests.end());
    if (group == groups_.end() || values.contains(0) || values.size() < kDigests) continue;
    alike[{group->second, digests}].push_back(rank);
  }
  std::vector<std::vector<uint32_t>> same;
  for (auto& [key, ranks] : alike) {
    if (ranks.size() > 1) same.push_back(std::move(ranks));
  }
  return same;
}

}  // namespace plumbline::analysis

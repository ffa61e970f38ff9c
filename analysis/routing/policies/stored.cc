#include "analysis/routing/policies/stored.h"

namespace plumbline::analysis {

bool StoredNumbers::excluded() const {
  for (size_t i = 0; i < least_.size(); ++i) {
    if (least_[i] > most_[i]) return true;
  }
  return false;
}

void StoredNumbers::Join(const StoredNumbers& other) {
  if (other.least_.size() != least_.size()) {
    least_.assign(1, 1);
    most_.assign(1, 0);
    return;
  }
  for (size_t i = 0; i < least_.size(); ++i) {
    AtLeast(i, other.least_[i]);
    AtMost(i, other.most_[i]);
  }
}

void StoredRules::Take(const std::vector<StoredNumbers>& call) {
  if (call.empty()) return;
  std::vector<StoredNumbers> left;
  for (const StoredNumbers& numbers : call) {
    StoredNumbers both = numbers;
    if (any_) {
      const auto before = std::find_if(left_.begin(), left_.end(), [&](const StoredNumbers& x) {
        return x.what() == numbers.what();
      });
      if (before == left_.end()) continue;  // this table did not explain all earlier calls
      both.Join(*before);
    }
    if (!both.excluded()) left.push_back(std::move(both));
  }
  any_ = true;
  left_ = std::move(left);
}

}  // namespace plumbline::analysis

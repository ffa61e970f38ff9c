// Counts things by sender.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace plumbline::server {

// Not thread-safe. Keeps no entry of a sender that has none.
class NameCounts {
 public:
  size_t Of(const std::string& sender) const {
    const auto found = counts_.find(sender);
    return found == counts_.end() ? 0 : found->second;
  }
  void Add(const std::string& sender) { ++counts_[sender]; }
  void Remove(const std::string& sender) {
    const auto found = counts_.find(sender);
    if (found != counts_.end() && --found->second == 0) counts_.erase(found);
  }

 private:
  std::map<std::string, size_t> counts_;
};

}  // namespace plumbline::server

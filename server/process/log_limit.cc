#include "server/process/log_limit.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace plumbline::server {

bool LogLimit::Admit(std::string_view name, Time now) {
  const MutexLock lock(mutex_);
  auto found = kinds_.find(name);
  if (found == kinds_.end()) {
    // Kinds are formats of this program. The number of kinds is limited, because texts of others
    // may also be kinds.
    if (kinds_.size() >= kMostKinds) name = "";
    found = kinds_.try_emplace(std::string(name)).first;
    if (found->second.at == Time()) found->second.at = now;
  }
  Kind& kind = found->second;
  const std::chrono::duration<double> passed = now - kind.at;
  kind.tokens = std::min(kBurst, kind.tokens + std::max(0.0, passed.count()) * kPerSecond);
  kind.at = now;
  if (kind.tokens >= 1) {
    kind.tokens -= 1;
    return true;
  }
  if (unsaid_ == 0) stated_ = now;
  ++kind.left_out;
  ++unsaid_;
  ++left_out_;
  return false;
}

std::vector<std::string> LogLimit::LeftOut(Time now, bool all) {
  const MutexLock lock(mutex_);
  std::vector<std::string> lines;
  if (unsaid_ == 0 || (!all && now - stated_ < kDescribeEach)) return lines;
  for (auto& [name, kind] : kinds_) {
    if (kind.left_out == 0) continue;
    lines.push_back(absl::StrCat(kind.left_out, " similar lines were not logged, such as \"", name,
                                 "\" (at most ", kBurst, " at once and ", kPerSecond,
                                 " per second are logged)"));
    kind.left_out = 0;
  }
  unsaid_ = 0;
  return lines;
}

uint64_t LogLimit::left_out() const {
  const MutexLock lock(mutex_);
  return left_out_;
}

}  // namespace plumbline::server

#include "agent/core/run/stop_order.h"

#include <algorithm>
#include <cstring>

namespace plumbline::agent {
namespace {

const char* LevelWord(v1::Level level) { return level == v1::LEVEL_ERROR ? "error" : "warning"; }

}  // namespace

void StopOrder::Take(const v1::StopTraining& order, int32_t level, int64_t first, int64_t newest) {
  if (level == 0 || order.level() < level || first < 0) return;
  if (order.step_last() < first || order.step_last() > newest) return;
  const MutexLock lock(mutex_);
  if (!reason_.empty()) return;
  const int64_t step = std::max(order.step_first(), first);
  reason_ = std::string(LevelWord(order.level())) + " " + order.rule() + ": " + order.title() +
            " (step " + std::to_string(step) + ")";
  ordered_.store(true, std::memory_order_release);
}

bool StopOrder::Copy(std::span<char> text) const {
  if (!ordered_.load(std::memory_order_acquire)) return false;
  if (text.empty()) return true;
  const MutexLock lock(mutex_);
  const size_t bytes = std::min(reason_.size(), text.size() - 1);
  std::memcpy(text.data(), reason_.data(), bytes);
  text[bytes] = '\0';
  return true;
}

}  // namespace plumbline::agent

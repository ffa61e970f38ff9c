#include "server/stream/judge_queue.h"

#include <utility>

namespace plumbline::server {
namespace {

// A parsed batch takes more memory than its wire bytes, and an empty one takes some.
constexpr size_t kItemOverhead = 512;

size_t Cost(const JudgeItem& item) {
  return item.kind == JudgeItem::Kind::kBatch ? item.batch.bytes + kItemOverhead : 0;
}

}  // namespace

bool JudgeQueue::Admit(size_t bytes, std::function<void()> resume) {
  const MutexLock lock(mutex_);
  if (closed_) return true;
  bytes_ += bytes + kItemOverhead;
  if ((bytes_ <= max_bytes_ && !held_) || resume == nullptr) return true;
  paused_.push_back(std::move(resume));
  return false;
}

void JudgeQueue::Push(JudgeItem item) {
  const MutexLock lock(mutex_);
  if (closed_) return;
  items_.push_back(std::move(item));
  changed_.NotifyOne();
}

void JudgeQueue::Hold(bool held) {
  std::vector<std::function<void()>> resumed;
  {
    const MutexLock lock(mutex_);
    held_ = held;
    if (!held_ && bytes_ <= max_bytes_) resumed.swap(paused_);
  }
  for (const auto& resume : resumed) resume();
}

JudgeQueue::Popped JudgeQueue::Pop(Clock::time_point deadline, JudgeItem* item) {
  std::vector<std::function<void()>> resumed;
  Popped result = Popped::kItem;
  {
    MutexLock lock(mutex_);
    const auto awake = [this]() PLUMB_REQUIRES(mutex_) { return closed_ || !items_.empty(); };
    if (!changed_.WaitUntil(lock, deadline, awake)) return Popped::kTimeout;
    if (items_.empty()) {
      result = Popped::kClosed;
    } else {
      *item = std::move(items_.front());
      items_.pop_front();
      bytes_ -= Cost(*item);
    }
    // Half empty before reading goes on: pausing and resuming each batch would cost more.
    if (bytes_ <= max_bytes_ / 2 && !held_) resumed.swap(paused_);
  }
  for (const auto& resume : resumed) resume();
  return result;
}

void JudgeQueue::Close() {
  const MutexLock lock(mutex_);
  closed_ = true;
  changed_.NotifyAll();
}

size_t JudgeQueue::size() const {
  const MutexLock lock(mutex_);
  return items_.size();
}

size_t JudgeQueue::bytes() const {
  const MutexLock lock(mutex_);
  return bytes_;
}

bool JudgeQueue::held() const {
  const MutexLock lock(mutex_);
  return held_;
}

int64_t JudgeQueue::oldest_unix_ns() const {
  const MutexLock lock(mutex_);
  for (const JudgeItem& item : items_) {
    if (item.kind == JudgeItem::Kind::kBatch) return item.unix_ns;
  }
  return 0;
}

}  // namespace plumbline::server

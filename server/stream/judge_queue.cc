#include "server/stream/judge_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace plumbline::server {
namespace {

// A parsed batch takes more memory than its wire bytes, and an empty one takes some, too.
constexpr size_t kItemOverhead = 512;

size_t Cost(const JudgeItem& item) {
  return item.kind == JudgeItem::Kind::kBatch ? item.batch.weight() + kItemOverhead : 0;
}

}  // namespace

bool JudgeQueue::HasRoom(const Run& run, size_t times) const {
  return bytes_ <= max_bytes_ && run.bytes <= times * (max_bytes_ - bytes_);
}

bool JudgeQueue::Admit(const std::string& run, size_t bytes, std::function<void()> resume) {
  const MutexLock lock(mutex_);
  if (closed_) return true;
  bytes_ += bytes + kItemOverhead;
  Run& of = runs_[run];
  of.bytes += bytes + kItemOverhead;
  if ((HasRoom(of, 3) && !held_) || resume == nullptr) return true;
  of.paused.push_back(std::move(resume));
  return false;
}

void JudgeQueue::Push(JudgeItem item) {
  const MutexLock lock(mutex_);
  if (closed_) return;
  item.place = ++last_place_;
  if (item.kind == JudgeItem::Kind::kBatch) received_[item.place] = item.unix_ns;
  items_.push_back(std::move(item));
  changed_.NotifyOne();
}

void JudgeQueue::Hold(bool held) {
  Resumptions resumed;
  {
    const MutexLock lock(mutex_);
    held_ = held;
    FreeAllLocked(&resumed);
  }
  for (const auto& resume : resumed) resume();
}

// Resumes reading only if several more batches fit, because each pause and resumption costs time.
void JudgeQueue::FreeLocked(Run& run, Resumptions* resumed) {
  if (held_ || run.paused.empty() || !HasRoom(run, 1)) return;
  resumed->insert(resumed->end(), std::make_move_iterator(run.paused.begin()),
                  std::make_move_iterator(run.paused.end()));
  run.paused.clear();
}

void JudgeQueue::FreeAllLocked(Resumptions* resumed) {
  looked_at_ = bytes_;
  for (auto& [name, run] : runs_) FreeLocked(run, resumed);
}

void JudgeQueue::Began(const JudgeItem& item) {
  Resumptions resumed;
  {
    const MutexLock lock(mutex_);
    --popped_;
    received_.erase(item.place);
    if (item.kind == JudgeItem::Kind::kBatch) {
      bytes_ -= Cost(item);
      const auto of = runs_.find(item.charged_run);
      of->second.bytes -= Cost(item);
      FreeLocked(of->second, &resumed);
      if (of->second.bytes == 0 && of->second.paused.empty()) runs_.erase(of);
      // Other runs have more space, too; they are checked from time to time.
      looked_at_ = std::max(looked_at_, bytes_);
      if (bytes_ == 0 || looked_at_ - bytes_ > max_bytes_ / 16) FreeAllLocked(&resumed);
    }
  }
  for (const auto& resume : resumed) resume();
}

JudgeQueue::Popped JudgeQueue::Pop(Clock::time_point deadline, JudgeItem* item) {
  MutexLock lock(mutex_);
  const auto up = [this]() PLUMB_REQUIRES(mutex_) { return closed_ || woken_ || !items_.empty(); };
  // Pop is called often and seldom has to wait; then the clock is not read.
  if (!up() && (deadline == Clock::time_point() || !changed_.WaitUntil(lock, deadline, up)))
    return Popped::kTimeout;
  woken_ = false;
  if (items_.empty()) return closed_ ? Popped::kClosed : Popped::kTimeout;
  *item = std::move(items_.front());
  items_.pop_front();
  ++popped_;
  return Popped::kItem;
}

void JudgeQueue::Wake() {
  const MutexLock lock(mutex_);
  woken_ = true;
  changed_.NotifyAll();
}

void JudgeQueue::Close() {
  const MutexLock lock(mutex_);
  closed_ = true;
  changed_.NotifyAll();
}

size_t JudgeQueue::size() const {
  const MutexLock lock(mutex_);
  return items_.size() + popped_;
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
  return received_.empty() ? 0 : received_.begin()->second;
}

}  // namespace plumbline::server

#include "server/journal/journal.h"

#include <algorithm>
#include <array>
#include <utility>

#include "server/process/log.h"

namespace plumbline::server {
namespace {

constexpr std::chrono::seconds kDrainTime{5};
constexpr std::chrono::milliseconds kFirstRetry{10};
constexpr std::chrono::milliseconds kLastRetry{1000};

}  // namespace

Journal::Journal(JournalOptions options, uint64_t last, StreamPositions streams, Counters* counters)
    : options_(std::move(options)),
      counters_(counters),
      streams_(std::move(streams)),
      last_(last),
      committed_(last) {
  if (!options_.segments.directory.empty()) {
    writer_ = std::make_unique<SegmentWriter>(options_.segments);
  }
  thread_ = std::thread([this] { Loop(); });
}

Journal::~Journal() { Stop(); }

void Journal::Stop() {
  {
    const MutexLock lock(mutex_);
    if (!stopped_) stop_by_ = Clock::now() + kDrainTime;
    stopped_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void Journal::Append(JournalEntry entry, Done done, std::function<void()> dropped) {
  Item item;
  item.is_entry = true;
  item.entry = std::move(entry);
  item.done = std::move(done);
  item.dropped = std::move(dropped);
  Push(std::move(item), false);
}

void Journal::Then(std::function<void()> what) {
  Item item;
  item.done = [what = std::move(what)](const EntryPrefix&) { what(); };
  Push(std::move(item), false);
}

absl::StatusOr<EntryPrefix> Journal::AppendAndWait(JournalEntry entry) {
  struct Wait {
    Mutex mutex;
    CondVar changed;
    bool over PLUMB_GUARDED_BY(mutex) = false;
    absl::StatusOr<EntryPrefix> result PLUMB_GUARDED_BY(mutex) =
        absl::UnavailableError("the journal stopped");
  };
  auto wait = std::make_shared<Wait>();
  const auto end = [wait] {
    const MutexLock lock(wait->mutex);
    wait->over = true;
    wait->changed.NotifyAll();
  };
  Item item;
  item.is_entry = true;
  item.entry = std::move(entry);
  item.done = [wait, end](const EntryPrefix& prefix) {
    {
      const MutexLock lock(wait->mutex);
      wait->result = prefix;
    }
    end();
  };
  item.dropped = end;
  Push(std::move(item), true);
  MutexLock lock(wait->mutex);
  wait->changed.Wait(lock, [&]() PLUMB_REQUIRES(wait->mutex) { return wait->over; });
  return wait->result;
}

void Journal::Push(Item item, bool urgent) {
  item.arrived = Clock::now();
  item.prefix.unix_ns = options_.unix_ns();
  item.prefix.stream_id = item.entry.stream_id;
  item.prefix.sequence = item.entry.sequence;
  {
    const MutexLock lock(mutex_);
    if (!stopped_) {
      urgent_ |= urgent;
      queued_bytes_ += item.entry.body.size();
      queued_entries_ += item.is_entry ? 1 : 0;
      queue_.push_back(std::move(item));
      // A thread that waits to commit a group wakes up by itself.
      const bool due = urgent_ || queued_entries_ == 0 || queued_bytes_ >= options_.commit_bytes;
      if (queue_.size() == 1 || due) changed_.NotifyAll();
      return;
    }
  }
  if (item.dropped) item.dropped();
}

void Journal::Loop() {
  std::vector<Item> batch;
  while (Gather(&batch)) {
    if (!Commit(batch)) break;
    batch.clear();
  }
  std::deque<Item> rest;
  {
    const MutexLock lock(mutex_);
    state_ = absl::UnavailableError("the journal has stopped");
    rest.swap(queue_);
  }
  for (Item& item : batch) {
    if (item.dropped) item.dropped();
  }
  for (Item& item : rest) {
    if (item.dropped) item.dropped();
  }
  if (writer_ != nullptr) (void)writer_->SyncNow();
}

// Waits for an item, then for more items to commit with it. Returns false if none is left and the
// journal must end.
bool Journal::Gather(std::vector<Item>* batch) {
  MutexLock lock(mutex_);
  while (queue_.empty()) {
    if (stopped_) return false;
    const Clock::time_point sync =
        writer_ == nullptr ? Clock::time_point::max() : writer_->sync_due();
    if (sync == Clock::time_point::max()) {
      changed_.Wait(lock);
    } else if (!changed_.WaitUntil(lock, sync)) {
      lock.Unlock();
      SyncIdle();
      lock.Lock();
    }
  }
  if (writer_ != nullptr) {
    changed_.WaitUntil(lock, queue_.front().arrived + options_.commit_delay,
                       [this]() PLUMB_REQUIRES(mutex_) {
                         return stopped_ || urgent_ || queued_entries_ == 0 ||
                                queued_bytes_ >= options_.commit_bytes;
                       });
  }
  size_t bytes = 0;
  while (!queue_.empty() && (batch->empty() || bytes < options_.commit_bytes)) {
    Item& item = queue_.front();
    bytes += item.entry.body.size();
    queued_entries_ -= item.is_entry ? 1 : 0;
    batch->push_back(std::move(item));
    queue_.pop_front();
  }
  queued_bytes_ -= bytes;
  if (queue_.empty()) urgent_ = false;
  return true;
}

// Returns false if the journal stops before the batch is held.
bool Journal::Commit(std::vector<Item>& batch) {
  uint64_t number = last_;
  size_t entries = 0;
  for (Item& item : batch) {
    if (!item.is_entry) continue;
    item.prefix.number = ++number;
    ++entries;
  }
  std::chrono::nanoseconds delay = kFirstRetry;
  bool stalled = false;
  for (;;) {
    writing_.Begin();
    const absl::Status written = Write(batch, entries);
    writing_.End();
    if (written.ok()) break;
    ++counters_->journal_failures;
    if (!std::exchange(stalled, true)) {
      LogError("journal: {}; nothing is acknowledged until it can be written",
               std::string(written.message()));
      SetState(written);
      if (options_.on_stall) options_.on_stall(true);
    }
    if (!WaitToRetry(delay)) return false;
    delay = std::min<std::chrono::nanoseconds>(2 * delay, kLastRetry);
  }
  if (stalled) {
    LogWarning("journal: writing works again");
    SetState(absl::OkStatus());
    if (options_.on_stall) options_.on_stall(false);
  }
  last_ = number;
  committed_ = number;
  for (Item& item : batch) {
    if (item.is_entry && item.entry.stream_id != 0) {
      streams_.Note(item.entry.stream_id, item.entry.sequence, item.entry.sets, item.entry.sources);
    }
    if (item.done) item.done(item.prefix);
    item.dropped = nullptr;
  }
  return true;
}

absl::Status Journal::Write(const std::vector<Item>& batch, size_t entries) {
  if (writer_ == nullptr || entries == 0) return absl::OkStatus();
  std::vector<std::array<char, EntryPrefix::kSize>> prefixes;
  std::vector<std::vector<std::string_view>> parts;
  std::vector<FrameToAppend> frames;
  prefixes.reserve(entries);
  parts.reserve(entries);
  frames.reserve(entries);
  const Item* first = nullptr;
  size_t bytes = 0;
  for (const Item& item : batch) {
    if (!item.is_entry) continue;
    if (first == nullptr) first = &item;
    prefixes.push_back(item.prefix.Encode());
    parts.push_back({std::string_view(prefixes.back().data(), prefixes.back().size())});
    item.entry.body.AddTo(&parts.back());
    frames.push_back({item.entry.type, parts.back(), options_.segments.compress});
    bytes += item.entry.body.size();
  }
  if (auto s = writer_->Commit(frames, first->prefix.number, first->prefix.unix_ns, streams_);
      !s.ok()) {
    return s;
  }
  if (auto s = writer_->SyncIfDue(Clock::now()); !s.ok()) {
    ++counters_->journal_failures;
    LogError("journal: {}; data written since the last sync may be lost if the host fails",
             std::string(s.message()));
  }
  ++counters_->journal_commits;
  counters_->journal_entries += entries;
  counters_->journal_bytes += bytes;
  return absl::OkStatus();
}

absl::Status Journal::state() const {
  const MutexLock lock(mutex_);
  return state_;
}

void Journal::SetState(absl::Status state) {
  const MutexLock lock(mutex_);
  state_ = std::move(state);
}

bool Journal::WaitToRetry(std::chrono::nanoseconds delay) {
  MutexLock lock(mutex_);
  if (!stopped_)
    changed_.WaitFor(lock, delay, [this]() PLUMB_REQUIRES(mutex_) { return stopped_; });
  if (!stopped_) return true;
  // While stopping, tries again until stop_by_.
  const Clock::time_point stop_by = stop_by_;
  lock.Unlock();
  std::this_thread::sleep_until(std::min(stop_by, Clock::now() + delay));
  return Clock::now() < stop_by;
}

void Journal::SyncIdle() {
  if (auto s = writer_->SyncIfDue(Clock::now()); !s.ok()) {
    ++counters_->journal_failures;
    LogError("journal: {}; data written since the last sync may be lost if the host fails",
             std::string(s.message()));
  }
}

}  // namespace plumbline::server

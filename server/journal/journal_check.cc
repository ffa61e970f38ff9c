#include "server/journal/journal_check.h"

#include "server/journal/journal_reader.h"
#include "server/journal/segments.h"
#include "server/process/log.h"
#include "server/process/thread_priority.h"

namespace plumbline::server {
namespace {

using Clock = std::chrono::steady_clock;

// Uses at most a fifth of a processor.
constexpr std::chrono::milliseconds kWork{20}, kRest{80};

}  // namespace

void JournalCheck::Start() {
  if (options_.last == 0) return;
  thread_ = std::thread([this] {
    LowerThreadPriority();
    Read();
  });
}

void JournalCheck::Stop() {
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
  }
  wake_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

// Returns false if it must stop.
bool JournalCheck::GoOn() {
  MutexLock lock(mutex_);
  const auto stopped = [this]() PLUMB_REQUIRES(mutex_) { return stopped_; };
  while (!stopped_ && (Clock::now() >= rest_at_ || options_.busy())) {
    if (wake_.WaitFor(lock, kRest, stopped)) return false;
    rest_at_ = Clock::now() + kWork;
  }
  return !stopped_;
}

void JournalCheck::Read() {
  auto reader = JournalReader::Open(options_.directory, 1, options_.last);
  if (!reader.ok()) {
    LogError("journal: {}", std::string(reader.status().message()));
    return;
  }
  const uint64_t first = (*reader)->next();
  StoredEntry entry;
  while (GoOn()) {
    const JournalReader::Result result = (*reader)->Next(&entry);
    if (result == JournalReader::Result::kLost) Emit((*reader)->lost());
    if (result != JournalReader::Result::kEnd) continue;
    LogDebug("journal: entries {} to {} checked", first, options_.last);
    return;
  }
}

void JournalCheck::Emit(const LostEntries& lost) {
  // If retention removed the segment meanwhile, this is already recorded.
  const auto segments = ListSegments(options_.directory);
  if (segments.ok() && !segments->empty() && lost.last < segments->front().first) return;
  if (auto s = gaps_->AddLost(lost); !s.ok())
    LogError("journal: a gap cannot be recorded: {}", std::string(s.message()));
}

}  // namespace plumbline::server

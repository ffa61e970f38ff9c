// The judging threads: which thread does the next work, and when another one takes over.

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <thread>
#include <utility>

#include "server/judge/judge.h"
#include "server/judge/judge_takeover.h"
#include "server/process/log.h"

namespace plumbline::server {
namespace {

// Period of the check for ranks that are gone and runs that are over.
constexpr std::chrono::milliseconds kTimerPeriod{100};
constexpr std::chrono::milliseconds kLongestTimerPeriod{2000};
constexpr std::chrono::milliseconds kStopLook{1};
// Limit of the runs that are judged at the same time; each has a place in the mark.
constexpr size_t kMostAtOnce = JudgingMarkPage::kPlaces - 1;
constexpr int64_t kSharedBy = 10;  // threads that share one processor, as a guess
// The priority of a thread from which others took over: if all processors are in use, it gets about
// a tenth of one.
constexpr int kSlowNice = 10;
// A checkpoint waits until no work is in progress. If other processes use all processors, nearly
// each item takes longer than TurnLock::kSlow, so some thread would always be taken over. So while
// a checkpoint is due, others take over only after this time.
constexpr std::chrono::milliseconds kSlowWhileDue{250};

int64_t CpuNs(clockid_t clock) {
  timespec at{};
  if (clock_gettime(clock, &at) != 0) return 0;
  return int64_t{1'000'000'000} * at.tv_sec + at.tv_nsec;
}

}  // namespace

thread_local Judge::Worker* Judge::worker_ = nullptr;

// ---- threads ----------------------------------------------------------------------------------

// Starts a thread that ends by itself: Stop waits for all of them.
void Judge::StartThread(std::function<void()> what) {
  {
    const MutexLock lock(threads_mutex_);
    ++threads_;
  }
  std::thread([this, what = std::move(what)]() mutable {
    Worker worker;
    worker.judge = this;
    worker.thread = gettid();
    (void)pthread_getcpuclockid(pthread_self(), &worker.cpu_clock);
    worker_ = &worker;
    {
      const MutexLock lock(threads_mutex_);
      workers_.push_back(&worker);
    }
    what();
    what = nullptr;
    worker_ = nullptr;
    const MutexLock lock(threads_mutex_);
    workers_.remove(&worker);
    --threads_;
    threads_changed_.NotifyAll();
  }).detach();
}

// Starts the thread that takes over if the current work takes long.
void Judge::StartTakeoverThread() {
  StartThread([this] {
    if (!turn_lock_.TakeOver()) return;
    {
      const MutexLock lock(threads_mutex_);
      for (Worker* worker : workers_) worker->slow = worker->busy.For().count() > 0;
    }
    StartTakeoverThread();
    Loop();
  });
}

// Lowers the priority of slow threads. Only called if another thread can use the processor: a
// single run must not wait for the threads that receive its evidence. Each such thread ends with
// its current work, so its priority is never restored. A thread that waited for a processor has
// used little of one and keeps its priority; otherwise it would wait forever on a machine whose
// processors are all in use.
void Judge::LowerSlowThreads() {
  const MutexLock lock(threads_mutex_);
  for (Worker* worker : workers_) {
    if (worker == worker_ || !worker->slow || worker->gives_way) continue;
    constexpr auto kUsed = std::chrono::nanoseconds(TurnLock::kSlow).count();
    if (CpuNs(worker->cpu_clock) - worker->cpu_begun < kUsed) continue;
    worker->gives_way = true;
    (void)setpriority(PRIO_PROCESS, worker->thread, kSlowNice);
  }
}

std::chrono::nanoseconds Judge::judging_for() const {
  const MutexLock lock(threads_mutex_);
  std::chrono::nanoseconds longest{0};
  for (const Worker* worker : workers_) {
    const auto at = worker->busy.For();
    longest = std::max(longest, worker->slow ? at / kSharedBy : at);
  }
  return longest;
}

// ---- the loop ---------------------------------------------------------------------------------

// Called with the lock, which is no longer held when it returns: if the server stops, or another
// thread took over.
void Judge::Loop() {
  while (Step()) {
  }
}

// Returns false if this thread must end.
bool Judge::Step() {
  TakeIn();
  if (turn_lock_.wanted()) {
    turn_lock_.Unlock();
    turn_lock_.Lock();
  }
  const auto now = JudgeQueue::Clock::now();
  if (now >= next_timers_) {
    if (!undecided_ && Deciding()) HandleTimers(now);
    open_step_bytes_ = engine_->open_bytes();
    rule_bytes_ = engine_->rule_bytes();
    rules_set_aside_ = engine_->rules_set_aside();
    series_left_out_ = engine_->series_left_out();
    // With ten thousand runs a check of all of them takes long. It must stay a small share of the
    // work.
    const auto took = JudgeQueue::Clock::now() - now;
    next_timers_ = now + std::min(std::max<JudgeQueue::Clock::duration>(kTimerPeriod, 20 * took),
                                  JudgeQueue::Clock::duration(kLongestTimerPeriod));
  }
  CheckpointIfDue();
  const bool due = checkpoint_due_ != JudgeQueue::Clock::time_point();
  if (stopping() || due || std::exchange(kept_next_, !kept_next_)) {
    if (const auto kept = TakeKept()) return ApplyKept(*kept);
  }
  if (stopping()) return WaitForWork();
  const bool retry =
      retry_ != nullptr && now >= retry_->wake && !fair_queue_.Busy(retry_->run.run());
  if (retry && std::exchange(retry_next_, false)) return DoRetry();
  retry_next_ = true;
  if (!for_all_.empty() && fair_queue_.in_order()) return DecideForAll();
  if (auto begun = fair_queue_.Next(now, Which())) return Do(std::move(*begun));
  if (const auto kept = TakeKept()) return ApplyKept(*kept);
  return WaitForWork();
}

FairQueue::Which Judge::Which() const {
  const auto much_of = [this](const Budget& budget) {
    return budget.promised_bytes > 0 && Held(budget) > open_limit_ + open_limit_ / 4;
  };
  const bool much = open_limit_ > 0 && (much_of(of_steps_) || much_of(of_rules_));
  if (much) return FairQueue::Which::kRoom;
  // To judge a run ahead of others needs an event, too.
  return for_all_.empty() && Deciding() ? FairQueue::Which::kAny : FairQueue::Which::kInOrder;
}

void Judge::BeginWork() {
  const bool due = checkpoint_due_ != JudgeQueue::Clock::time_point();
  turn_lock_.AllowTakeover(fair_queue_.going_on() - keeping_ <= kMostAtOnce,
                           due ? kSlowWhileDue : TurnLock::kSlow);
  worker_->slow = false;
  worker_->unix_ns = unix_ns_;
  worker_->cpu_begun = CpuNs(CLOCK_THREAD_CPUTIME_ID);
  worker_->busy.Begin();
  turn_lock_.Begin(&worker_->work);
}

// Returns false if another thread took over meanwhile.
bool Judge::EndWork() {
  judged_entry_ = fair_queue_.through();
  store_->Judged(judged_entry_);
  KeepWithinBudget();
  worker_->busy.End();
  turn_lock_.End(&worker_->work);
  if (!worker_->work.slow) return true;
  turn_lock_.Unlock();
  queue_.Wake();  // work that waited for this run can begin
  return false;
}

bool Judge::Do(FairQueue::Begun begun) {
  JudgeItem& item = *begun.work.item;
  BeginWork();
  if (fair_queue_.going_on() - keeping_ > 1) LowerSlowThreads();
  if (item.place != 0) queue_.Began(item);
  const bool later = item.kind == JudgeItem::Kind::kDecision && MayKeepLater();
  if ((begun.overtakes || later) && !ahead_told_) (void)TellAhead();
  if (later) {
    KeepLater(std::move(begun));
    return EndWork();
  }
  Handle(item, begun.work.runs);
  fair_queue_.Done(begun, JudgeQueue::Clock::now() - worker_->work.begun);
  return EndWork();
}

// Records once between two checkpoints that runs may be ahead (TellsAhead). Returns false if the
// event could not be written.
bool Judge::TellAhead() {
  ahead_told_ = true;
  return KeepAndApply(v1::JudgeEvent()).ok();
}

// Applies a decision for every run while no run is ahead of another, and without takeover.
bool Judge::DecideForAll() {
  JudgeItem item = std::move(for_all_.front());
  for_all_.pop_front();
  BeginWork();
  turn_lock_.AllowTakeover(false);
  queue_.Began(item);
  Handle(item, {});
  return EndWork();
}

bool Judge::DoRetry() {
  const auto begun = fair_queue_.Occupy(retry_->run.run());
  BeginWork();
  GoOnWithRetry();
  fair_queue_.Done(*begun, JudgeQueue::Clock::now() - worker_->work.begun);
  return EndWork();
}

// Returns false if the server stops and no work is left.
bool Judge::WaitForWork() {
  auto until = next_timers_;
  if (retry_ != nullptr) until = std::min(until, retry_->wake);
  JudgeItem item;
  turn_lock_.Unlock();
  const auto popped = queue_.Pop(until, &item);
  if (popped == JudgeQueue::Popped::kClosed) std::this_thread::sleep_for(kStopLook);
  turn_lock_.Lock();
  if (popped == JudgeQueue::Popped::kItem) TakeIn(std::move(item));
  if (popped != JudgeQueue::Popped::kClosed) return true;
  if (fair_queue_.going_on() > 0 || (!fair_queue_.empty() && !stopping())) return true;
  if (!fair_queue_.empty())
    LogWarning("{} items were not judged before the server stopped", queue_.size());
  HandInCheckpoint();
  turn_lock_.Stop();
  turn_lock_.Unlock();
  return false;
}

// ---- waiting work ----------------------------------------------------------------------------

// Takes in all queued items, so that the next one can be chosen; only some of them if there are
// many, since as many may arrive meanwhile.
void Judge::TakeIn() {
  constexpr int kMost = 4096;
  JudgeItem item;
  for (int i = 0; i < kMost && queue_.Pop({}, &item) == JudgeQueue::Popped::kItem; ++i)
    TakeIn(std::move(item));
}

void Judge::TakeIn(JudgeItem item) {
  if (item.kind == JudgeItem::Kind::kDecision && item.event.has_suppressions()) {
    const v1::SuppressionSet& set = item.event.suppressions();
    if (for_all_.empty() && engine_->SuppressionsAre(rules::FromMessage(set), set.today())) {
      queue_.Began(item);  // nothing would change
      if (item.decided) item.decided(absl::OkStatus());
      Decided();
      return;
    }
    for_all_.push_back(std::move(item));
  } else {
    fair_queue_.Push(WorkOf(std::move(item)));
  }
}

FairQueue::Work Judge::WorkOf(JudgeItem item) const {
  FairQueue::Work work;
  work.since = JudgeQueue::Clock::now();
  if (item.kind == JudgeItem::Kind::kBatch) {
    work.runs = RunTable::RunsOf(*item.batch.batch);
    work.entry = item.entry;
    work.stream = item.stream_id;
  } else if (item.sources != nullptr) {
    std::set<std::string_view> runs;
    for (const v1::Source& source : *item.sources) runs.insert(source.run());
    work.runs.assign(runs.begin(), runs.end());
    work.stream = item.stream_id;
  } else if (item.kind == JudgeItem::Kind::kDecision) {
    work.runs = {RunOf(item.event)};
  } else {
    work.runs = {item.run};
  }
  work.item = std::make_shared<JudgeItem>(std::move(item));
  return work;
}

void Judge::PushEvent(v1::JudgeEvent event) {
  JudgeItem item;
  item.kind = JudgeItem::Kind::kDecision;
  item.event = std::move(event);
  {
    const MutexLock lock(decisions_mutex_);
    ++decisions_;
  }
  fair_queue_.PushFirst(WorkOf(std::move(item)));
}

}  // namespace plumbline::server

// The judging threads: which thread does the next work, and when another one takes over.

#include <algorithm>
#include <thread>
#include <utility>

#include "server/judge/judge.h"
#include "server/process/log.h"

namespace plumbline::server {
namespace {

// Period of the check for ranks that are gone and runs that are over.
constexpr std::chrono::milliseconds kTimerPeriod{100};
constexpr std::chrono::milliseconds kLongestTimerPeriod{2000};
constexpr std::chrono::milliseconds kStopLook{1};
// Limit of the runs that are judged at the same time; each has a place in the mark.
constexpr size_t kMostAtOnce = JudgingMarkPage::kPlaces - 1;
}  // namespace

// Called with the turn. Returns when this thread no longer has the turn: the server stops, or
// another thread took over.
void Judge::Loop() {
  while (Step()) {
  }
}

// Returns false if this thread must end.
bool Judge::Step() {
  TakeIn();
  if (threads_.turn().wanted()) {
    threads_.turn().Unlock();
    threads_.turn().Lock();
  }
  const auto now = JudgeQueue::Clock::now();
  if (now >= next_timers_) {
    if (!undecided_ && decisions_.open()) HandleTimers(now);
    open_step_bytes_ = engine_->open_bytes();
    rule_bytes_ = engine_->rule_bytes();
    rules_set_aside_ = engine_->rules_set_aside();
    series_left_out_ = engine_->series_left_out();
    // With ten thousand runs a check of all of them takes long. The check must stay a small share
    // of the work.
    const auto took = JudgeQueue::Clock::now() - now;
    next_timers_ = now + std::min(std::max<JudgeQueue::Clock::duration>(kTimerPeriod, 20 * took),
                                  JudgeQueue::Clock::duration(kLongestTimerPeriod));
  }
  CheckpointIfDue();
  if (stopping() || checkpoints_.waiting() || std::exchange(later_next_, !later_next_)) {
    if (const auto written = later_.Take()) return ApplyLater(*written);
  }
  if (stopping()) return WaitForWork();
  const std::string* retried = held_runs_.retried();
  const bool retry = retried != nullptr && now >= held_runs_.wake() && !fair_queue_.Busy(*retried);
  if (retry && std::exchange(retry_next_, false)) return DoRetry();
  retry_next_ = true;
  if (!for_all_.empty() && fair_queue_.in_order()) return DecideForAll();
  if (auto begun = fair_queue_.Next(now, Which())) return Do(std::move(*begun));
  if (const auto written = later_.Take()) return ApplyLater(*written);
  return WaitForWork();
}

FairQueue::Which Judge::Which() const {
  if (limits_.urgent()) return FairQueue::Which::kRoom;
  // Judging a run ahead of others needs an event, too.
  return for_all_.empty() && decisions_.open() ? FairQueue::Which::kAny
                                               : FairQueue::Which::kInOrder;
}

void Judge::BeginWork() {
  threads_.BeginWork(fair_queue_.going_on() - later_.size() <= kMostAtOnce, checkpoints_.waiting());
  worker().unix_ns = unix_ns_;
}

// Returns false if another thread took over meanwhile.
bool Judge::EndWork() {
  judged_entry_ = fair_queue_.through();
  store_->Judged(judged_entry_);
  limits_.Keep();
  if (threads_.EndWork()) return true;
  threads_.turn().Unlock();
  queue_.Wake();  // work that waited for this run can begin
  return false;
}

bool Judge::Do(FairQueue::Begun begun) {
  JudgeItem& item = *begun.work.item;
  BeginWork();
  if (fair_queue_.going_on() - later_.size() > 1) threads_.LowerSlow();
  if (item.place != 0) queue_.Began(item);
  const bool later = item.kind == JudgeItem::Kind::kDecision && MayKeepLater();
  if ((begun.overtakes || later) && !ahead_reported_) (void)RecordAhead();
  if (later) {
    KeepLater(std::move(begun));
    return EndWork();
  }
  Handle(item, begun.work.runs);
  fair_queue_.Done(begun, threads_.UsedByMine());
  return EndWork();
}

// Records once between two checkpoints that runs may be ahead (ReportsAhead). Returns false if the
// event could not be written.
bool Judge::RecordAhead() {
  ahead_reported_ = true;
  return KeepAndApply(v1::JudgeEvent()).ok();
}

// Applies a decision for every run while no run is ahead of another, and without takeover.
bool Judge::DecideForAll() {
  JudgeItem item = std::move(for_all_.front());
  for_all_.pop_front();
  BeginWork();
  threads_.turn().AllowTakeover(false);
  queue_.Began(item);
  Handle(item, {});
  return EndWork();
}

bool Judge::DoRetry() {
  const auto begun = fair_queue_.Occupy(*held_runs_.retried());
  BeginWork();
  held_runs_.Continue();
  fair_queue_.Done(*begun, threads_.UsedByMine());
  return EndWork();
}

// Returns false if the server stops and no work is left.
bool Judge::WaitForWork() {
  auto until = next_timers_;
  if (held_runs_.retried() != nullptr) until = std::min(until, held_runs_.wake());
  JudgeItem item;
  threads_.turn().Unlock();
  const auto popped = queue_.Pop(until, &item);
  if (popped == JudgeQueue::Popped::kClosed) std::this_thread::sleep_for(kStopLook);
  threads_.turn().Lock();
  if (popped == JudgeQueue::Popped::kItem) TakeIn(std::move(item));
  if (popped != JudgeQueue::Popped::kClosed) return true;
  if (fair_queue_.going_on() > 0 || (!fair_queue_.empty() && !stopping())) return true;
  if (!fair_queue_.empty())
    LogWarning("{} items were not judged before the server stopped", queue_.size());
  HandInCheckpoint();
  threads_.turn().Stop();
  threads_.turn().Unlock();
  return false;
}

// ---- waiting work ----------------------------------------------------------------------------

// Takes in all queued items, so that the next one can be chosen; if there are many, takes only some
// of them, because as many may arrive meanwhile.
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
      decisions_.Decided();
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

void Judge::DoFirst(const std::string& run, std::function<void()> task) {
  JudgeItem item;
  item.kind = JudgeItem::Kind::kTask;
  item.run = run;
  item.task = std::move(task);
  FairQueue::Work work = WorkOf(std::move(item));
  work.room = true;
  fair_queue_.PushFirst(std::move(work));
}

void Judge::PushEvent(v1::JudgeEvent event) {
  JudgeItem item;
  item.kind = JudgeItem::Kind::kDecision;
  item.event = std::move(event);
  decisions_.EnterAnyway();
  fair_queue_.PushFirst(WorkOf(std::move(item)));
}

}  // namespace plumbline::server

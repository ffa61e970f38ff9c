#include "server/judge/judge.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

namespace plumbline::server {
namespace {

// Ranks that are gone and runs that are over are looked for this often.
constexpr std::chrono::milliseconds kTimerPeriod{100};
constexpr std::chrono::seconds kDrainTime{5};

int64_t UnixNanos() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Judge::Judge(const JudgeOptions& options, IncidentBook* book, Counters* counters)
    : book_(book), counters_(counters), queue_(options.queue_bytes), runs_(options.grace) {}

absl::StatusOr<std::unique_ptr<Judge>> Judge::Create(const JudgeOptions& options,
                                                     IncidentBook* book, Counters* counters) {
  std::unique_ptr<Judge> judge(new Judge(options, book, counters));
  auto engine = rules::Engine::Create(options.engine,
                                      [j = judge.get()](const v1::Verdict& v) { j->OnVerdict(v); });
  if (!engine.ok()) return engine.status();
  judge->engine_ = std::move(*engine);
  judge->thread_ = std::thread([j = judge.get()] { j->Loop(); });
  return judge;
}

Judge::~Judge() { Stop(); }

void Judge::Stop() {
  stop_by_ = JudgeQueue::Clock::now() + kDrainTime;
  queue_.Close();
  if (thread_.joinable()) thread_.join();
}

void Judge::Loop() {
  auto next_timers = JudgeQueue::Clock::now() + kTimerPeriod;
  for (;;) {
    JudgeItem item;
    const auto popped = queue_.Pop(next_timers, &item);
    if (popped == JudgeQueue::Popped::kClosed) return;
    if (popped == JudgeQueue::Popped::kItem) Handle(std::move(item));
    const auto now = JudgeQueue::Clock::now();
    if (now > stop_by_.load()) {
      spdlog::warn("{} items were not judged before the server stopped", queue_.size());
      return;
    }
    if (now < next_timers) continue;
    HandleTimers(now);
    next_timers = now + kTimerPeriod;
  }
}

void Judge::Handle(JudgeItem item) {
  const auto now = JudgeQueue::Clock::now();
  switch (item.kind) {
    case JudgeItem::Kind::kBatch:
      return HandleBatch(item.stream_id, std::move(item.batch.batch));
    case JudgeItem::Kind::kConnected: {
      std::lock_guard lock(mutex_);
      for (const v1::Source& s : item.sources) runs_.Connected(item.stream_id, s, now, UnixNanos());
      return;
    }
    case JudgeItem::Kind::kDisconnected: {
      std::lock_guard lock(mutex_);
      for (const v1::Source& s : item.sources) runs_.Disconnected(item.stream_id, s, now);
      return;
    }
  }
}

void Judge::HandleBatch(uint64_t stream_id, v1::Batch batch) {
  std::vector<std::string> runs;
  {
    std::lock_guard lock(mutex_);
    runs_.Account(stream_id, batch, JudgeQueue::Clock::now(), UnixNanos());
    runs = runs_.RunsOf(batch);
  }
  const auto items = static_cast<uint64_t>(batch.evidence_size());
  const absl::Status added = engine_->Add(std::move(batch));
  if (!added.ok()) {
    counters_->engine_refused += items;
    spdlog::warn("{} evidence items refused by the rule engine: {}", items,
                 std::string(added.message()));
  }
  std::lock_guard lock(mutex_);
  for (const std::string& run : runs) runs_.SetClosedStep(run, engine_->closed_step(run));
}

void Judge::HandleTimers(JudgeQueue::Clock::time_point now) {
  std::vector<v1::Source> gone;
  std::vector<std::string> ended;
  {
    std::lock_guard lock(mutex_);
    gone = runs_.TakeGone(now);
    ended = runs_.TakeEnded(now);
  }
  for (const v1::Source& source : gone) {
    spdlog::warn("run {:?} rank {}: gone (no stream came back within the grace period)",
                 source.run(), source.rank());
    engine_->MarkGone(source);
    std::lock_guard lock(mutex_);
    runs_.SetClosedStep(source.run(), engine_->closed_step(source.run()));
  }
  for (const std::string& run : ended) {
    engine_->FinishRun(run);
    spdlog::info("run {:?}: over", run);
    std::lock_guard lock(mutex_);
    runs_.SetAllClosed(run);
  }
}

void Judge::OnVerdict(const v1::Verdict& verdict) {
  rules::Report::Change change;
  v1::Finding finding;
  {
    std::lock_guard lock(mutex_);
    RunReport& run = reports_[verdict.site().run()];
    change = run.report.Add(verdict);
    if (verdict.kind() == v1::Verdict::KIND_INCONCLUSIVE) {
      ++run.inconclusive;
    } else if (verdict.rule().rfind("meta/", 0) != 0) {
      ++run.judged;
    }
    if (change.finding == nullptr) return;
    finding = *change.finding;
  }
  book_->Put(finding, change.count);
  if (change.opened) {
    spdlog::warn("run {:?} {} {:?} step {}: {:?}", finding.site().run(), finding.rule(),
                 finding.site().layer(), finding.site().step_first(), finding.title());
  }
}

std::vector<v1::RunInfo> Judge::Runs() const {
  std::vector<v1::RunInfo> list;
  {
    std::lock_guard lock(mutex_);
    list = runs_.List();
  }
  for (v1::RunInfo& info : list) info.set_open_incidents(book_->OpenIn(info.run()));
  return list;
}

v1::ListVerdictsResponse Judge::Verdicts(const std::string& run) const {
  v1::ListVerdictsResponse response;
  std::lock_guard lock(mutex_);
  for (const auto& [name, entry] : reports_) {
    if (!run.empty() && run != name) continue;
    for (const v1::Verdict* verdict : entry.report.verdicts()) *response.add_verdicts() = *verdict;
    response.set_judged(response.judged() + entry.judged);
    response.set_inconclusive(response.inconclusive() + entry.inconclusive);
  }
  for (const v1::RunInfo& info : runs_.List()) {
    if (run.empty() || run == info.run()) response.set_dropped(response.dropped() + info.lost());
  }
  return response;
}

}  // namespace plumbline::server

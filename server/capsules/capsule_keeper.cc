#include "server/capsules/capsule_keeper.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "server/process/log.h"

namespace plumbline::server {
namespace {

constexpr std::chrono::milliseconds kTick{20};
constexpr size_t kMostTasks = 1 << 16;

}  // namespace

CapsuleKeeper::CapsuleKeeper(CapsuleOptions options,
                             std::function<RunKnown(const std::string&)> known, Counters* counters)
    : options_(std::move(options)),
      known_(std::move(known)),
      counters_(counters),
      files_(options_.directory),
      run_processes_(options_.grace, started_) {}

CapsuleKeeper::~CapsuleKeeper() { Stop(); }

absl::Status CapsuleKeeper::Start() {
  if (!keeps()) return absl::OkStatus();
  auto held = files_.Load();
  if (!held.ok()) return held.status();
  for (v1::CapsuleInfo& info : *held) {
    Capsule& capsule = capsules_[info.finding().fingerprint()];
    capsule.begun = started_;
    capsule.ranks.resize(static_cast<size_t>(info.ranks_size()));
    for (Rank& rank : capsule.ranks) rank.gone_at = started_ + options_.grace;
    const MutexLock lock(mutex_);
    view_[info.finding().fingerprint()] = info;
    by_id_[info.id()] = &capsule;
    capsule.info = std::move(info);
  }
  thread_ = std::thread([this] { Loop(); });
  return absl::OkStatus();
}

void CapsuleKeeper::Stop() {
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
  }
  wake_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

// Queues a task. Returns false if there is no space.
bool CapsuleKeeper::Post(size_t bytes, std::function<void()> task) {
  {
    const MutexLock lock(mutex_);
    const bool full = waiting_bytes_ + bytes > options_.queue_bytes || tasks_.size() >= kMostTasks;
    if (stopped_ || !thread_.joinable() || (bytes > 0 && full)) return false;
    waiting_bytes_ += bytes;
    tasks_.emplace_back(bytes, std::move(task));
  }
  wake_.NotifyOne();
  return true;
}

void CapsuleKeeper::Loop() {
  MutexLock lock(mutex_);
  auto next_tick = Clock::now() + kTick;
  for (;;) {
    wake_.WaitUntil(lock, next_tick,
                    [this]() PLUMB_REQUIRES(mutex_) { return stopped_ || !tasks_.empty(); });
    if (stopped_) return;
    while (!tasks_.empty()) {
      auto [bytes, task] = std::move(tasks_.front());
      tasks_.pop_front();
      lock.Unlock();
      task();
      lock.Lock();
      waiting_bytes_ -= bytes;
    }
    if (Clock::now() < next_tick) continue;
    lock.Unlock();
    Tick();
    lock.Lock();
    next_tick = Clock::now() + kTick;
  }
}

void CapsuleKeeper::Joined(uint64_t stream_id, uint64_t connection, std::weak_ptr<Connection> line,
                           const v1::Hello& hello) {
  RunProcesses::Stream stream;
  stream.connection = connection;
  stream.line = std::move(line);
  stream.sources = {hello.sources().begin(), hello.sources().end()};
  stream.tool_version = hello.tool_version();
  stream.follows = hello.directives();
  Post(0, [this, stream_id, stream = std::move(stream)] {
    if (run_processes_.Joined(stream_id, stream, Clock::now())) TakeUp(stream_id);
  });
}

void CapsuleKeeper::Left(uint64_t stream_id, uint64_t connection) {
  Post(0, [this, stream_id, connection] {
    if (!run_processes_.Left(stream_id, connection)) return;
    for (auto& [fingerprint, capsule] : capsules_) {
      for (Rank& rank : capsule.ranks) {
        if (rank.stream != stream_id) continue;
        rank.stream = 0;
        rank.gone_at = Clock::now() + options_.grace;
      }
    }
  });
}

void CapsuleKeeper::OnPart(uint64_t stream_id, v1::CapsulePart part) {
  const size_t bytes = part.ByteSizeLong() + 256;  // the whole message uses memory, for any content
  auto shared = std::make_shared<v1::CapsulePart>(std::move(part));
  if (!Post(bytes, [this, stream_id, shared] { PartCame(stream_id, *shared); })) {
    ++counters_->capsule_parts_dropped;  // the next part reveals the gap
  }
}

void CapsuleKeeper::OnReport(uint64_t stream_id, const v1::DirectiveReport& report) {
  if (report.reason().empty()) return;
  ++counters_->directives_cut;
  LogInfo("stream {:016x} {:?} {:?}: asked to sample every {}. step, samples every {}: {:?}",
          stream_id, report.site().layer(), report.site().op(), report.asked_every(),
          report.every() == 0 ? "none" : absl::StrCat("each ", report.every(), "."),
          report.reason());
}

void CapsuleKeeper::OnFinding(const v1::Finding& finding) {
  const bool wanted = options_.level != v1::LEVEL_UNSPECIFIED && finding.level() >= options_.level;
  if (!keeps() || !wanted || finding.suppressed() || finding.site().op().empty() ||
      finding.rule().rfind("meta/", 0) == 0) {
    return;
  }
  Post(256, [this, finding] {
    if (capsules_.count(finding.fingerprint()) != 0) return;
    const auto taken = std::count_if(capsules_.begin(), capsules_.end(), [&](const auto& c) {
      return c.second.info.finding().site().run() == finding.site().run();
    });
    if (static_cast<uint32_t>(taken) >= options_.per_run || capsules_.size() >= options_.most) {
      ++counters_->capsules_not_taken;
      return;
    }
    SampleDensely(finding);
    Begin(finding);
  });
}

void CapsuleKeeper::Request(const v1::Finding& finding, bool anew,
                            // NOLINTNEXTLINE(performance-unnecessary-value-param): kept by the task
                            std::function<void(absl::StatusOr<v1::CapsuleInfo>)> done) {
  if (!keeps()) {
    return done(absl::FailedPreconditionError(
        "this server stores nothing on disk: start plumbd with --data DIR for capsules"));
  }
  const auto work = [this, finding, anew, done] {
    auto known = capsules_.find(finding.fingerprint());
    const bool settled =
        known != capsules_.end() && known->second.info.state() >= v1::CapsuleInfo::STATE_COMPLETE;
    const bool empty = settled && known->second.info.state() == v1::CapsuleInfo::STATE_FAILED;
    if (known != capsules_.end() && !empty && !(anew && settled)) return done(known->second.info);
    if (known != capsules_.end()) {
      files_.Remove(known->second.info);
      by_id_.erase(known->second.info.id());
      capsules_.erase(known);
    }
    done(Begin(finding)->info);
  };
  if (!Post(0, work)) done(absl::UnavailableError("the server is shutting down"));
}

std::vector<v1::CapsuleInfo> CapsuleKeeper::List(const std::string& run,
                                                 const std::string& fingerprint) const {
  std::vector<v1::CapsuleInfo> list;
  {
    const MutexLock lock(mutex_);
    for (const auto& [known, info] : view_) {
      if (!run.empty() && info.finding().site().run() != run) continue;
      if (known.rfind(fingerprint, 0) == 0) list.push_back(info);
    }
  }
  std::stable_sort(list.begin(), list.end(),
                   [](const auto& a, const auto& b) { return a.unix_ns() < b.unix_ns(); });
  return list;
}

std::string CapsuleKeeper::PathOf(const v1::CapsuleInfo& info, int index) const {
  return files_.Path(info, info.ranks(index).source());
}

void CapsuleKeeper::Tick() {
  const auto now = Clock::now();
  for (auto& [fingerprint, capsule] : capsules_) {
    if (capsule.info.state() == v1::CapsuleInfo::STATE_TAKING) Look(&capsule, now);
  }
  BeginWaiting();
  if (std::exchange(grown_, false)) Shrink();
}

void CapsuleKeeper::Look(Capsule* capsule, Clock::time_point now) {
  if (now >= capsule->retry_at) return QueryAll(capsule);
  for (int i = 0; i < capsule->info.ranks_size(); ++i) {
    const Rank& rank = capsule->ranks[static_cast<size_t>(i)];
    if (capsule->info.ranks(i).state() != v1::CapsuleRank::STATE_ASKED) continue;
    if (rank.stream == 0 && now >= rank.gone_at) {
      FailRank(capsule, i, "gone: the process did not reconnect");
    } else if (rank.stream != 0 && now >= rank.spoke + options_.silence) {
      Query(capsule, i);
    }
  }
  Settle(capsule);
}

void CapsuleKeeper::Save(const Capsule& capsule) {
  if (auto s = files_.Save(capsule.info); !s.ok()) {
    ++counters_->capsule_errors;
    LogError("capsule: {}", std::string(s.message()));
  }
  const MutexLock lock(mutex_);
  view_[capsule.info.finding().fingerprint()] = capsule.info;
}

// Removes the oldest finished capsules until the limit holds; the newest stays.
void CapsuleKeeper::Shrink() {
  const auto bytes_of = [](const v1::CapsuleInfo& info) {
    uint64_t bytes = 0;
    for (const v1::CapsuleRank& rank : info.ranks()) bytes += rank.bytes();
    return bytes;
  };
  uint64_t total = 0;
  std::vector<std::pair<int64_t, std::string>> settled;
  for (const auto& [fingerprint, capsule] : capsules_) {
    total += bytes_of(capsule.info);
    if (capsule.info.state() >= v1::CapsuleInfo::STATE_COMPLETE) {
      settled.emplace_back(capsule.info.unix_ns(), fingerprint);
    }
  }
  std::sort(settled.begin(), settled.end());
  for (size_t i = 0;
       i + 1 < settled.size() && (total > options_.bytes || capsules_.size() > options_.most);
       ++i) {
    const auto oldest = capsules_.find(settled[i].second);
    by_id_.erase(oldest->second.info.id());
    total -= bytes_of(oldest->second.info);
    files_.Remove(oldest->second.info);
    ++counters_->capsules_expired;
    {
      const MutexLock lock(mutex_);
      view_.erase(oldest->first);
    }
    capsules_.erase(oldest);
  }
}

}  // namespace plumbline::server

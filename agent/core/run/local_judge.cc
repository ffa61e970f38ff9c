#include "agent/core/run/local_judge.h"

#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>

namespace plumbline::agent {
namespace {

constexpr uint64_t kMostBytes = 64ull << 20;  // of open steps; the rules remember a part of it
constexpr uint64_t kStream = 1;               // this engine has one sender
constexpr std::chrono::seconds kLook{1};      // between looks at `closing_`, if a wake-up is missed

// The judged process is the only rank of its world: no step waits for another one.
v1::Batch Alone(const transport::SealedBatch& sealed) {
  v1::Batch batch = transport::Parsed(sealed);
  batch.set_stream_id(kStream);
  for (v1::Source& source : *batch.mutable_sources()) {
    source.set_rank(0);
    source.set_world_size(1);
  }
  return batch;
}

}  // namespace

absl::StatusOr<std::shared_ptr<LocalJudge>> LocalJudge::Start(std::shared_ptr<RunState> run) {
  std::shared_ptr<LocalJudge> judge(new LocalJudge(std::move(run)));
  rules::EngineConfig config;
  config.run_bytes = kMostBytes;
  auto engine =
      rules::Engine::Create(config, [j = judge.get()](const v1::Verdict& v) { j->OnVerdict(v); });
  if (!engine.ok()) return engine.status();
  judge->engine_ = *std::move(engine);
  if (!judge->thread_.Start("plumb-judge", [judge] { judge->Loop(); }))
    return absl::ResourceExhaustedError("the system could not create a thread");
  return judge;
}

void LocalJudge::Push(const transport::SealedBatch& batch) {
  const MutexLock lock(mutex_);
  waiting_.push_back(waiting_.size() < kMostWaiting
                         ? batch
                         : transport::WithoutEvidence(batch, "local-judge", {}));
  changed_.NotifyOne();
}

bool LocalJudge::Finish(Clock::time_point deadline) {
  closing_.store(true, std::memory_order_release);
  changed_.NotifyOne();
  return thread_.WaitEnded(deadline);
}

bool LocalJudge::Next(transport::SealedBatch* batch) {
  MutexLock lock(mutex_);
  while (waiting_.empty()) {
    if (closing_.load(std::memory_order_acquire)) return false;
    changed_.WaitFor(lock, kLook, [&]() PLUMB_REQUIRES(mutex_) {
      return !waiting_.empty() || closing_.load(std::memory_order_acquire);
    });
  }
  if (closing_.load(std::memory_order_acquire)) return false;
  *batch = std::move(waiting_.front());
  waiting_.pop_front();
  return true;
}

void LocalJudge::Loop() {
  transport::SealedBatch batch;
  try {
    while (Next(&batch)) Judge(batch);
  } catch (const std::exception& error) {  // the trainer continues
    std::fprintf(stderr, "plumbline: stop_on: judging in this process has ended: %s\n",
                 error.what());
    closing_.store(true, std::memory_order_release);
    const MutexLock lock(mutex_);
    waiting_.clear();
  }
  engine_.reset();
}

// A batch that the engine refuses is judged later, by an audit of the record, which reports it.
void LocalJudge::Judge(const transport::SealedBatch& batch) {
  if (batch.body != nullptr) engine_->Add(Alone(batch)).IgnoreError();
}

void LocalJudge::OnVerdict(const v1::Verdict& verdict) {
  if (verdict.kind() != v1::Verdict::KIND_FINDING || verdict.finding().suppressed()) return;
  v1::StopTraining order;
  order.set_rule(verdict.rule());
  order.set_level(verdict.finding().level());
  order.set_title(verdict.finding().title());
  order.set_step_first(verdict.site().step_first());
  order.set_step_last(verdict.site().step_last());
  run_->stop_order.Take(order, run_->options.stop_on, run_->first_step.load(),
                        run_->newest_step.load());
}

}  // namespace plumbline::agent

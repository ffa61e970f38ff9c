// A run's beginning and end: opens its record, its outbox and its threads, and waits until all
// observations are written and delivered.
#include "agent/core/run/run.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "agent/core/shared/error.h"
#include "base/clock.h"
#include "base/printable.h"
#include "base/version/build_version.h"

namespace plumbline::agent {
namespace {

// An allocator whose memory is separate pages, returned to the system when freed. In the trainer's
// heap the place of a large object would be split by small objects after it is freed, and the next
// one would need new memory: a thousand runs opened and closed left 237 MB allocated. Thread-safe,
// stateless. Throws std::bad_alloc.
template <typename T>
struct PageAllocator {
  using value_type = T;

  PageAllocator() = default;
  template <typename U>
  PageAllocator(const PageAllocator<U>& /*other*/) {}  // NOLINT: as allocators convert

  T* allocate(size_t n) {
    void* pages =
        mmap(nullptr, n * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    return static_cast<T*>(pages);
  }
  void deallocate(T* pages, size_t n) { munmap(pages, n * sizeof(T)); }

  template <typename U>
  bool operator==(const PageAllocator<U>& /*other*/) const {
    return true;
  }
};

using std::chrono::milliseconds;

plumbline_status_t Unwritten(const char* call, const absl::Status& why, plumbline_error_t* error) {
  return Fail(error, PLUMBLINE_INTERNAL,
              std::string(call) + ": the record cannot be written: " + std::string(why.message()));
}

std::string Counted(uint64_t n, const std::string& one, const std::string& many) {
  return std::to_string(n) + " " + (n == 1 ? one : many);
}

std::string Undelivered(const transport::Outbox& outbox) {
  const transport::Outbox::State left = outbox.state();
  return Counted(left.batches, "batch", "batches") + " (" +
         Counted(left.items, "evidence item", "evidence items") + " in memory)";
}

std::string WhereSpooled(const transport::Outbox& outbox) {
  const uint64_t batches = outbox.state().spooled;
  if (batches == 0) return "";
  return "; " + Counted(batches, "batch is", "batches are") + " kept in " + outbox.spool_path() +
         " for the next process of this rank, or `plumb spool send`";
}

uint64_t RandomId() {
  std::random_device random;
  const uint64_t id = (static_cast<uint64_t>(random()) << 32) | random();
  return id == 0 ? 1 : id;
}

// Returns the name of the process's user, as its environment states it.
std::string UserName() {
  constexpr size_t kMost = 64;  // bytes
  for (const char* name : {"LOGNAME", "USER"}) {
    const char* const value = std::getenv(name);
    if (value != nullptr && *value != '\0')
      return ValidUtf8(std::string_view(value).substr(0, kMost));
  }
  return "";
}

v1::Source SourceOf(const AgentOptions& options) {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  v1::Source source;
  source.set_run(options.run);
  source.set_attempt(options.attempt);
  source.set_role(static_cast<v1::Role>(options.role));
  source.set_rank(options.rank);
  source.set_world_size(options.world_size);
  source.set_host(host);
  source.set_pid(getpid());
  source.set_tool_version(BuildVersion());
  source.set_user(UserName());
  return source;
}

// Fills the data that distinguish a hanging rank from a slow rank.
void FillHeartbeat(const RunState& state, v1::Heartbeat* beat) {
  const plumbline_marks_t* marks = state.marks.load(std::memory_order_acquire);
  const uint64_t mark = marks != nullptr ? __atomic_load_n(&marks->now, __ATOMIC_RELAXED) : 0;
  const v1::Span::Kind marked = StageOf(mark);
  const bool in_step = state.open_step.load(std::memory_order_acquire) != kNoStep;
  // Between steps, a stage that begins shows that the loop continues.
  const uint64_t moved =
      std::max(state.moved_ns.load(std::memory_order_relaxed), in_step ? 0 : TimeOf(mark));
  const uint64_t now = MonotonicNs();
  if (moved != 0 && now > moved) beat->set_still_ns(now - moved);
  beat->set_steps_ended(state.steps_ended.load(std::memory_order_relaxed));
  beat->set_in_step(in_step);
  beat->set_last_stage(marked != v1::Span::KIND_UNSPECIFIED
                           ? marked
                           : static_cast<v1::Span::Kind>(state.spans.last_ended()));
  // Within a collective a rank waits for others; a declared stage is more specific.
  if (marked == v1::Span::KIND_COLLECTIVE) beat->set_open_stage(marked);
  for (const v1::Span::Kind kind :
       {v1::Span::KIND_COLLECTIVE, v1::Span::KIND_CHECKPOINT, v1::Span::KIND_EVALUATION,
        v1::Span::KIND_COMPILE, v1::Span::KIND_PAUSE}) {
    if (state.spans.open(kind)) beat->set_open_stage(kind);
  }
  // The loop is between two steps or between the stages of a step, and in no stage, so it is
  // unknown whether anything will follow.
  const bool between = !in_step || mark != 0 || state.spans.ever(v1::Span::KIND_FORWARD) ||
                       state.spans.ever(v1::Span::KIND_BACKWARD);
  // The forward stage lasts until the backward pass, which may never come. With several ranks the
  // stage counts, because other ranks may wait in it.
  const bool alone = state.options.world_size == 1;
  const bool in_marked =
      marked != v1::Span::KIND_UNSPECIFIED && !(alone && marked == v1::Span::KIND_FORWARD);
  const bool open = in_marked || (alone ? state.spans.any_open_but(v1::Span::KIND_FORWARD)
                                        : state.spans.any_open());
  if (between && !open) beat->set_open_stage(v1::Span::KIND_OTHER);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Run>> Run::Open(AgentOptions options) {
  std::optional<transport::Redactor> redactor;
  if (options.redact) {
    auto secret = transport::RedactSecret(options.run);
    if (!secret.ok()) return secret.status();
    redactor.emplace(*secret);
  }
  std::unique_ptr<RecordSink> record;
  const auto role = static_cast<v1::Role>(options.role);
  if (!options.record_dir.empty()) {
    auto attempt = ClaimAttempt(options.record_dir, role, options.rank, options.attempt);
    if (!attempt.ok()) return attempt.status();
    options.attempt = *attempt;
    auto opened = RecordSink::Open(options.record_dir, SourceOf(options), RandomId(),
                                   redactor ? redactor->key_id() : 0);
    if (!opened.ok()) return opened.status();
    record = *std::move(opened);
  }
  std::unique_ptr<Run> run(new Run());
  run->state_ = std::allocate_shared<RunState>(PageAllocator<RunState>(), options,
                                               SourceOf(options), redactor);
  run->together_ = std::make_unique<CallBatch>(run->state_.get());
  if (!run->state_->ring.valid()) {
    return absl::ResourceExhaustedError("no memory for a ring of " +
                                        std::to_string(options.ring_bytes) + " bytes");
  }
  if (absl::Status s = run->OpenOutbox(); !s.ok()) return s;
  if (!run->StartThreads(std::move(record))) {
    return absl::ResourceExhaustedError("the system could not create a thread");
  }
  return run;
}

// Opens the queue of batches for the server: in memory, and on disk if a spool is configured.
absl::Status Run::OpenOutbox() {
  const AgentOptions& options = state_->options;
  if (options.server.empty()) return absl::OkStatus();
  stream_id_ = RandomId();
  std::unique_ptr<transport::Spool> spool;
  if (!options.spool_dir.empty()) {
    auto created = transport::Spool::Create(options.spool_dir, state_->source, stream_id_,
                                            {options.spool_bytes, BuildVersion()});
    if (!created.ok()) return created.status();
    spool = *std::move(created);
  }
  outbox_ = std::make_shared<transport::Outbox>(
      transport::OutboxLimits{options.queue_bytes, options.queue_batches}, std::move(spool));
  return absl::OkStatus();
}

// Starts the stream first, so that the drain thread's first batch has a destination.
bool Run::StartThreads(std::unique_ptr<RecordSink> record) {
  const AgentOptions& options = state_->options;
  std::shared_ptr<Directives> directives;
  if (!options.server.empty()) {
    transport::StreamConfig config;
    config.target = options.server;
    config.sources = {state_->source};
    config.stream_id = stream_id_;
    config.tool_version = BuildVersion();
    config.reconnecting = options.world_size;
    config.backoff_first_ms = options.backoff_first_ms;
    config.backoff_last_ms = options.backoff_last_ms;
    config.ack_timeout_ms = options.ack_timeout_ms;
    config.heartbeat_ms = options.heartbeat_ms;
    config.newest_step = [state = state_] { return state->newest_step.load(); };
    config.fill_heartbeat = [state = state_](v1::Heartbeat* beat) { FillHeartbeat(*state, beat); };
    config.credentials = transport::CredentialsFromEnvironment();
    config.on_refused = DescribeOnce(options.server);
    config.on_rejected = DescribeRejected(options.server);
    config.on_unreachable = DescribeUnreachable(options.server, options.caller);
    config.server_forgot = [state = state_] { state->declare_again.store(true); };
    config.side = directives = std::make_shared<Directives>(state_);
    config.stop_on = static_cast<v1::Level>(options.stop_on);
    config.opened = Clock::now();
    stream_ = std::make_shared<ServerStream>(std::move(config), outbox_, options.spool_dir);
    if (!stream_->Start()) return false;
  }
  if (record != nullptr) record->NameSeries(state_->series);
  if (options.server.empty() && options.stop_on != 0) {
    auto judge = LocalJudge::Start(state_);
    if (judge.ok()) judge_ = *std::move(judge);
    if (!judge.ok())
      std::fprintf(stderr, "plumbline: stop_on: nothing is judged in this process: %s\n",
                   std::string(judge.status().message()).c_str());
  }
  drain_ = std::make_shared<Drain>(state_, std::move(record), outbox_, directives, judge_);
  return drain_->Start();
}

Run::~Run() {
  // Only after a failed Open: otherwise Close has ended them.
  const Clock::time_point now = Clock::now();
  if (drain_ != nullptr) drain_->Finish(now);
  if (stream_ != nullptr) stream_->Finish(now);
  if (judge_ != nullptr) judge_->Finish(now);
}

// Returns when all earlier observations are in the record and acknowledged by the server.
plumbline_status_t Run::Flush(uint32_t timeout_ms, plumbline_error_t* error) {
  const Clock::time_point deadline = Clock::now() + milliseconds(timeout_ms);
  together_->Launch();
  if (!drain_->Flush(deadline)) {
    return Fail(error, PLUMBLINE_DEADLINE_EXCEEDED,
                "flush: some evidence was not measured and written within " +
                    std::to_string(timeout_ms) + " ms");
  }
  if (const absl::Status s = drain_->record_status(); !s.ok()) return Unwritten("flush", s, error);
  if (outbox_ == nullptr) return PLUMBLINE_OK;
  const uint64_t wanted = outbox_->pushed();
  while (outbox_->settled() < wanted) {
    if (Clock::now() >= deadline) {
      return Fail(error, PLUMBLINE_DEADLINE_EXCEEDED,
                  "flush: server " + state_->options.server + " has not acknowledged " +
                      std::to_string(wanted - outbox_->settled()) + " batches within " +
                      std::to_string(timeout_ms) + " ms");
    }
    std::this_thread::sleep_for(milliseconds(2));
  }
  return PLUMBLINE_OK;
}

// Frees on a separate thread, since freeing may wait for unrelated work of the trainer. If the
// drain thread is not done yet, it frees the devices when it ends.
void Run::FreeDevices(Clock::time_point deadline) {
  if (!state_->devices->used()) return;
  DetachedThread thread;
  if (thread.Start("plumb-free", [devices = state_->devices] { devices->Free(); })) {
    thread.WaitEnded(deadline);
  }
}

plumbline_status_t Run::Close(uint32_t timeout_ms, plumbline_error_t* error) {
  const Clock::time_point deadline = Clock::now() + milliseconds(timeout_ms);
  together_->Close();
  EndGraphs(state_->newest_step.load());
  const std::string within = " within " + std::to_string(timeout_ms) + " ms";
  const bool drained = drain_->Finish(deadline);
  if (judge_ != nullptr) judge_->Finish(deadline);
  const bool delivered = stream_ == nullptr || stream_->Finish(drained ? deadline : Clock::now());
  absl::Status written = drain_->record_status();
  if (written.ok()) written = drain_->record_loss();
  if (drained) FreeDevices(deadline);
  drain_.reset();
  stream_.reset();
  if (!drained) {
    return Fail(error, PLUMBLINE_DEADLINE_EXCEEDED,
                "close: some evidence was not measured and written" + within);
  }
  if (!delivered) {
    return Fail(error, PLUMBLINE_DEADLINE_EXCEEDED,
                "close: server " + state_->options.server + " has not acknowledged " +
                    Undelivered(*outbox_) + within + WhereSpooled(*outbox_));
  }
  if (!written.ok()) return Unwritten("close", written, error);
  PrintRecord();
  return NotTaken(error);
}

// Prints where the record is and which command judges it, once per job.
void Run::PrintRecord() const {
  const AgentOptions& options = state_->options;
  if (options.record_dir.empty() || options.rank != 0 || state_->newest_step.load() < 0) return;
  std::fprintf(stderr, "plumbline: recorded in %s. To judge it: plumb audit %s\n",
               Printable(options.record_dir).c_str(),
               Printable(ShellPath(options.record_dir)).c_str());
}

// Returns an error if the server refused batches, or if there was no space for batches while the
// server was away.
plumbline_status_t Run::NotTaken(plumbline_error_t* error) const {
  if (outbox_ == nullptr) return PLUMBLINE_OK;
  const transport::Outbox::State state = outbox_->state();
  if (state.rejected == 0 && state.dropped == 0) return PLUMBLINE_OK;
  return Fail(error, PLUMBLINE_INTERNAL,
              "close: " + Counted(state.dropped, "evidence item", "evidence items") +
                  " did not fit while the server was not reachable, " +
                  Counted(state.rejected, "batch was", "batches were") + " refused by " +
                  state_->options.server);
}

}  // namespace plumbline::agent

#include "transport/courier.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace plumbline::transport {
namespace {

using std::chrono::milliseconds;

// How long the thread sleeps for want of events: a batch waits at most this long to be sent.
constexpr milliseconds kBusyNap{50};
constexpr milliseconds kIdleNap{100};
constexpr milliseconds kIdleAfter{1000};

// The server was there and meant it; anything else may be better next time.
bool Refused(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::NOT_FOUND:
    case grpc::StatusCode::ALREADY_EXISTS:
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::UNIMPLEMENTED:
    case grpc::StatusCode::UNAUTHENTICATED:
      return true;
    default:
      return false;
  }
}

// Somebody is there, but one of us does not trust the other's certificate.
bool NoHandshake(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE &&
         status.error_message().find("andshake") != std::string::npos;
}

}  // namespace

Courier::Courier(const StreamConfig& config, Outbox* outbox, StreamCounters* counters,
                 Wishes wishes)
    : config_(config), outbox_(*outbox), counters_(*counters), wishes_(std::move(wishes)) {}

bool Courier::Wanted() const {
  return !wishes_.stopping() && !(wishes_.finishing() && outbox_.state().empty());
}

// Credentials are read anew for each connection: they are changed while a trainer runs.
absl::Status Courier::Prepare() {
  if (channel_ != nullptr && !config_.credentials.any()) return absl::OkStatus();
  auto channel = MakeChannel(config_);
  if (!channel.ok()) return channel.status();
  channel_ = *std::move(channel);
  return absl::OkStatus();
}

// One connection. True when the server welcomed us.
bool Courier::RunOnce(grpc::Status* status) {
  if (const absl::Status ready = Prepare(); !ready.ok()) {
    *status = {grpc::StatusCode::FAILED_PRECONDITION, std::string(ready.message())};
    return false;
  }
  grpc::CompletionQueue events;
  Connection connection(config_, &outbox_, &counters_, channel_, &events);
  connection.Start();
  void* tag = nullptr;
  bool ok = false;
  while (!connection.finished()) {
    if (wishes_.finishing()) connection.Finish();
    if (wishes_.stopping()) connection.Break();
    const bool idle = Clock::now() - connection.last_event() > kIdleAfter && !wishes_.finishing();
    const milliseconds nap = idle ? kIdleNap : kBusyNap;
    const auto got = events.AsyncNext(&tag, &ok, std::chrono::system_clock::now() + nap);
    if (got == grpc::CompletionQueue::GOT_EVENT) Connection::Dispatch(tag, ok);
    connection.Tick();
  }
  events.Shutdown();
  while (events.Next(&tag, &ok)) {
  }
  *status = connection.status();
  return connection.welcomed();
}

// Between two attempts. When the end is near the next attempt is made at once, the first time.
void Courier::WaitBefore(Clock::time_point again) {
  const bool was_finishing = wishes_.finishing();
  while (Clock::now() < again && Wanted()) {
    if (wishes_.finishing() && !was_finishing) return;
    std::this_thread::sleep_for(milliseconds(20));
  }
}

void Courier::Run() {
  uint32_t backoff_ms = config_.backoff_first_ms;
  grpc::Status status;
  while (Wanted()) {
    if (RunOnce(&status)) backoff_ms = config_.backoff_first_ms;
    if (config_.on_refused && (Refused(status) || NoHandshake(status))) config_.on_refused(status);
    WaitBefore(Clock::now() + milliseconds(backoff_ms));
    backoff_ms = std::min(backoff_ms * 2, config_.backoff_last_ms);
  }
}

absl::Status Courier::Deliver() {
  uint32_t backoff_ms = config_.backoff_first_ms;
  grpc::Status status;
  while (Wanted()) {
    if (RunOnce(&status)) backoff_ms = config_.backoff_first_ms;
    if (Refused(status)) {
      return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                          status.error_message());
    }
    WaitBefore(Clock::now() + milliseconds(backoff_ms));
    backoff_ms = std::min(backoff_ms * 2, config_.backoff_last_ms);
  }
  if (outbox_.state().empty()) return absl::OkStatus();
  return absl::CancelledError("stopped before " + config_.target + " had everything" +
                              (status.ok() ? "" : ": " + status.error_message()));
}

uint64_t DeliverLeftovers(const Leftovers& leftovers) {
  uint64_t left = 0;
  for (const FoundSpool& found : FindSpools(leftovers.dir)) {
    if (leftovers.stopping()) break;
    const auto& of = leftovers.of;
    if (of && (found.role != of->role() || found.rank != of->rank())) continue;
    auto spool = Spool::Adopt(found.path, {.tool_version = leftovers.config.tool_version});
    if (!spool.ok()) {
      left += spool.status().code() == absl::StatusCode::kDataLoss;
      continue;
    }
    const std::string& run = (*spool)->source().run();
    if ((of && run != of->run()) || (!leftovers.run.empty() && run != leftovers.run)) continue;
    StreamConfig config = leftovers.config;
    config.sources = {(*spool)->source()};
    config.stream_id = (*spool)->stream_id();
    const Spool& in = **spool;
    Outbox outbox({}, *std::move(spool));
    const uint64_t batches = outbox.state().batches;
    StreamCounters counters;
    Courier courier(config, &outbox, &counters, {[] { return true; }, leftovers.stopping});
    const absl::Status delivered = courier.Deliver();
    left += !delivered.ok();
    if (leftovers.report) leftovers.report(in, delivered, batches);
  }
  return left;
}

}  // namespace plumbline::transport

#include "transport/stream_sender.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "transport/diagnosis.h"

namespace plumbline::transport {
namespace {

using std::chrono::milliseconds;

// How long the thread sleeps without events: a batch waits at most this long to be sent.
constexpr milliseconds kBusyNap{50};
constexpr milliseconds kIdleNap{100};
constexpr milliseconds kIdleAfter{1000};
// The longest pause between tries if the server or relay is reachable but cannot serve at present.
constexpr uint32_t kUnavailableLongest = 400;

// Returns true if the server refused the stream for good. Other errors are tried again.
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

// Returns true if the server has no space for one more run or process. That may change, so it is
// tried again.
bool Full(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED;
}

// Returns true if a peer answers, but one side does not trust the other's certificate.
bool NoHandshake(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE &&
         status.error_message().find("andshake") != std::string::npos;
}

}  // namespace

StreamSender::StreamSender(const StreamConfig& config, Outbox* outbox, StreamCounters* counters,
                           StopConditions stop_conditions)
    : config_(config),
      outbox_(*outbox),
      counters_(*counters),
      stop_conditions_(std::move(stop_conditions)),
      dialer_(config),
      backoff_ms_(config.backoff_first_ms),
      random_(std::random_device()()) {}

bool StreamSender::Wanted() const {
  return !stop_conditions_.stopping() && !(stop_conditions_.finishing() && outbox_.state().empty());
}

// Makes one connection. Returns true if the server accepted the stream.
bool StreamSender::RunOnce(grpc::Status* status) {
  auto channel = dialer_.Take();
  if (!channel.ok()) {
    *status = {grpc::StatusCode::FAILED_PRECONDITION, std::string(channel.status().message())};
    return false;
  }
  return Call(*channel, status);
}

bool StreamSender::Call(const std::shared_ptr<grpc::Channel>& channel, grpc::Status* status) {
  grpc::CompletionQueue events;
  Connection connection(config_, &outbox_, &counters_, channel, &events);
  connection.Start();
  void* tag = nullptr;
  bool ok = false;
  while (!connection.finished()) {
    if (stop_conditions_.finishing()) connection.Finish();
    if (stop_conditions_.stopping()) connection.Break();
    const bool idle =
        Clock::now() - connection.last_event() > kIdleAfter && !stop_conditions_.finishing();
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

// Waits. If finishing begins meanwhile, returns early once, so that the next try follows at once.
void StreamSender::Wait(uint64_t ms) {
  const Clock::time_point again = Clock::now() + milliseconds(ms);
  const bool was_finishing = stop_conditions_.finishing();
  while (Clock::now() < again && Wanted()) {
    if (stop_conditions_.finishing() && !was_finishing) return;
    std::this_thread::sleep_for(milliseconds(20));
  }
}

// Spreads the dials of thousands of clients that lost one server, or begin together.
void StreamSender::Spread() {
  const uint32_t spread = PaceOf(config_).spread_ms;
  if (spread > 0) Wait(std::uniform_int_distribution<uint64_t>(0, spread)(random_));
}

// Dials and polls until a server is reachable.
void StreamSender::AwaitServer() {
  const bool was_finishing = stop_conditions_.finishing();
  const auto on = [&] { return Wanted() && (was_finishing || !stop_conditions_.finishing()); };
  if (!dialer_.Await(on) && Wanted()) dialer_.Forget();
}

void StreamSender::WaitBeforeNext(bool welcomed, const grpc::Status& status) {
  if (welcomed) {
    backoff_ms_ = config_.backoff_first_ms;
    Spread();
    return Wait(backoff_ms_);
  }
  const bool unavailable = status.error_code() == grpc::StatusCode::UNAVAILABLE;
  if (unavailable && !dialer_.Connected()) {
    if (config_.on_unreachable && !NoHandshake(status)) config_.on_unreachable(status);
    return AwaitServer();
  }
  // The server is reachable, and is overloaded, still starting, or refuses.
  Wait(std::uniform_int_distribution<uint64_t>(backoff_ms_ / 2, backoff_ms_)(random_));
  const uint64_t longest = std::max(unavailable ? kUnavailableLongest : config_.backoff_last_ms,
                                    PaceOf(config_).retry_ms);
  backoff_ms_ = std::min<uint64_t>(backoff_ms_ * 2, longest);
}

void StreamSender::Run() {
  grpc::Status status;
  Spread();
  while (Wanted()) {
    const bool welcomed = RunOnce(&status);
    const bool refused = Refused(status) || NoHandshake(status) || (!welcomed && Full(status));
    if (config_.on_refused && refused) config_.on_refused(status);
    WaitBeforeNext(welcomed, status);
  }
}

absl::Status StreamSender::Deliver() {
  grpc::Status status;
  while (Wanted()) {
    const bool welcomed = RunOnce(&status);
    if (Refused(status)) {
      return absl::Status(static_cast<absl::StatusCode>(status.error_code()), TextOf(status));
    }
    WaitBeforeNext(welcomed, status);
  }
  if (outbox_.state().empty()) return absl::OkStatus();
  return absl::CancelledError("stopped before " + config_.target + " received everything" +
                              (status.ok() ? "" : ": " + TextOf(status)));
}

uint64_t DeliverDeadSpools(const DeadSpools& dead_spools) {
  uint64_t left = 0;
  for (const FoundSpool& found : FindSpools(dead_spools.dir)) {
    if (dead_spools.stopping()) break;
    const auto& of = dead_spools.of;
    if (of && (found.role != of->role() || found.rank != of->rank())) continue;
    auto spool = Spool::Adopt(found.path, {.tool_version = dead_spools.config.tool_version});
    if (!spool.ok()) {
      left += spool.status().code() == absl::StatusCode::kDataLoss;
      continue;
    }
    const std::string& run = (*spool)->source().run();
    if ((of && run != of->run()) || (!dead_spools.run.empty() && run != dead_spools.run)) continue;
    StreamConfig config = dead_spools.config;
    config.sources = {(*spool)->source()};
    config.stream_id = (*spool)->stream_id();
    const Spool& in = **spool;
    Outbox outbox({}, *std::move(spool));
    const uint64_t batches = outbox.state().batches;
    StreamCounters counters;
    StreamSender stream_sender(config, &outbox, &counters,
                               {[] { return true; }, dead_spools.stopping});
    const absl::Status delivered = stream_sender.Deliver();
    left += !delivered.ok();
    if (dead_spools.report) dead_spools.report(in, delivered, batches);
  }
  return left;
}

}  // namespace plumbline::transport

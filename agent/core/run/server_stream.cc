#include "agent/core/run/server_stream.h"

#include <grpc/support/log.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "base/printable.h"
#include "transport/diagnosis.h"
#include "transport/reason.h"
#include "transport/stream_sender.h"

namespace plumbline::agent {

namespace {

// Returns the reason that no call reaches the server. The text is short if no host or process
// answers.
std::string WhyNot(const std::string& server, const std::string& opened,
                   const grpc::Status& status) {
  using transport::Fault;
  const transport::Diagnosis found =
      transport::Diagnose(server, transport::CredentialsFromEnvironment(), status);
  if (transport::NeedsChange(found.fault))
    return found.text + (opened.empty() ? "" : " (" + opened + ")");
  const bool away = found.fault == Fault::kNothingListens || found.fault == Fault::kNoName;
  return "no server answers at " + server + (opened.empty() ? "" : ", " + opened + ",") + ": " +
         (away ? transport::WhyUnreachable(status.error_message()) : found.text);
}

// gRPC writes a line for each failed handshake, several per second. The messages below state the
// fault once.
void SilenceGrpc() {
  if (std::getenv("GRPC_VERBOSITY") != nullptr || std::getenv("GRPC_TRACE") != nullptr) return;
  gpr_set_log_function([](gpr_log_func_args*) {});
}

}  // namespace

std::function<void(const grpc::Status&)> DescribeOnce(const std::string& server) {
  return [server, stated = std::string()](const grpc::Status& status) mutable {
    std::string text =
        transport::Diagnose(server, transport::CredentialsFromEnvironment(), status).text;
    if (stated == text) return;
    stated = std::move(text);
    std::fprintf(stderr,
                 "plumbline: %s does not accept the evidence of this process; the evidence is "
                 "stored for now: %s\n",
                 server.c_str(), stated.c_str());
  };
}

std::function<void(const grpc::Status&)> DescribeUnreachable(const std::string& server,
                                                             const std::string& caller) {
  const std::string opened = caller.empty() ? "" : "given at " + caller;
  return [server, opened, stated = false](const grpc::Status& status) mutable {
    if (std::exchange(stated, true)) return;
    const std::string why = WhyNot(server, opened, status);
    std::fprintf(stderr, "plumbline: %s. Evidence is stored, and sent when a server accepts it.\n",
                 why.c_str());
  };
}

std::function<void(const std::string&)> DescribeRejected(const std::string& server) {
  return [server, stated = false](const std::string& reason) mutable {
    if (std::exchange(stated, true)) return;
    std::fprintf(stderr,
                 "plumbline: %s refuses evidence of this process: %s. This evidence is lost; "
                 "run.finish() reports the number of batches. This message is printed once.\n",
                 server.c_str(), Printable(reason).c_str());
  };
}

ServerStream::ServerStream(transport::StreamConfig config,
                           std::shared_ptr<transport::Outbox> outbox, std::string spool_dir)
    : config_(std::move(config)), outbox_(std::move(outbox)), spool_dir_(std::move(spool_dir)) {}

bool ServerStream::Start() {
  SilenceGrpc();
  return thread_.Start("plumb-stream", [self = shared_from_this()] { self->Loop(); });
}

bool ServerStream::Finish(Clock::time_point deadline) {
  finish_.store(true, std::memory_order_release);
  thread_.WaitEnded(deadline);
  stop_.store(true, std::memory_order_release);
  thread_.WaitEnded(Clock::now() + std::chrono::milliseconds(500));
  return outbox_->state().empty();
}

void ServerStream::Loop() {
  // Debian's Abseil checks for lock cycles at every lock: 41 % of gRPC's CPU time.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  if (!spool_dir_.empty()) DeliverDeadSpools();
  transport::StreamSender(config_, outbox_.get(), &counters_,
                          {[this] { return finishing(); }, [this] { return stopping(); }})
      .Run();
}

// Spools are delivered first, so that the server sees the dead process before the process that has
// its rank now. A spool that the server refuses stays in place.
void ServerStream::DeliverDeadSpools() {
  transport::DeadSpools dead_spools;
  dead_spools.dir = spool_dir_;
  dead_spools.of = config_.sources.front();
  dead_spools.config = config_;
  dead_spools.config.newest_step = nullptr;
  dead_spools.config.server_forgot = nullptr;
  dead_spools.config.on_acknowledged = nullptr;
  dead_spools.config.side = nullptr;
  dead_spools.config.fill_heartbeat = nullptr;
  dead_spools.stopping = [this] { return stopping(); };
  dead_spools.report = [](const transport::Spool& spool, const absl::Status& delivered,
                          uint64_t n) {
    if (delivered.ok() || absl::IsCancelled(delivered)) return;
    std::fprintf(stderr, "plumbline: %llu batches of an earlier process remain in %s: %s\n",
                 static_cast<unsigned long long>(n), spool.path().c_str(),
                 std::string(delivered.message()).c_str());
  };
  transport::DeliverDeadSpools(dead_spools);
}

}  // namespace plumbline::agent

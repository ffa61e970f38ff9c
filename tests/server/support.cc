#include "tests/server/support.h"

#include <algorithm>
#include <csignal>

#include "audit/live/doctor_batch.h"

namespace plumbline::test {
namespace {

std::chrono::system_clock::time_point Soon() {
  return std::chrono::system_clock::now() + kPatience;
}

}  // namespace

Plumbd::Plumbd(std::vector<std::string> options, std::vector<std::string> environment,
               const std::string& program) {
  const auto has = [&](const char* name) {
    return std::find(options.begin(), options.end(), name) != options.end();
  };
  std::vector<std::string> command = {program.empty() ? PLUMBD_PROGRAM : program, "--port-file",
                                      folder_.File("port")};
  if (!has("--grpc")) command.insert(command.end(), {"--grpc", "127.0.0.1:0"});
  if (!has("--http")) command.insert(command.end(), {"--http", "off"});
  command.insert(command.end(), options.begin(), options.end());
  process_ = std::make_unique<Process>(command, std::move(environment));
  Eventually([&] {
    address_ = ReadFile(folder_.File("port"));
    return !address_.empty() || !process_->running();
  });
  while (!address_.empty() && address_.back() == '\n') address_.pop_back();
}

std::unique_ptr<Plumbd> Plumbd::At(const std::string& address) {
  // Another process may have got the port meanwhile: waits until it is free.
  std::unique_ptr<Plumbd> server;
  Eventually([&] {
    server = std::make_unique<Plumbd>(std::vector<std::string>{"--grpc", address});
    return !server->address().empty() ||
           server->process().errors().find("cannot listen on") == std::string::npos;
  });
  return server;
}

std::shared_ptr<grpc::Channel> Plumbd::Channel() const {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // one connection per channel
  return grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments);
}

int Plumbd::Stop() {
  process_->Signal(SIGTERM);
  return process_->Wait();
}

std::optional<v1::RunInfo> Plumbd::Run(const std::string& run) const {
  grpc::ClientContext context;
  context.set_deadline(Soon());
  v1::ListRunsResponse response;
  if (!v1::Query::NewStub(Channel())->ListRuns(&context, {}, &response).ok()) return std::nullopt;
  for (const v1::RunInfo& info : response.runs()) {
    if (info.run() == run) return info;
  }
  return std::nullopt;
}

namespace {

// Returns an empty response if the server does not answer.
v1::ListIncidentsResponse ListIncidents(const Plumbd& server, const std::string& run,
                                        const std::string& rule) {
  grpc::ClientContext context;
  context.set_deadline(Soon());
  v1::ListIncidentsRequest request;
  request.set_run(run);
  request.set_rule(rule);
  v1::ListIncidentsResponse response;
  (void)v1::Query::NewStub(server.Channel())->ListIncidents(&context, request, &response);
  return response;
}

}  // namespace

std::vector<v1::Incident> Plumbd::Incidents(const std::string& run, const std::string& rule) const {
  const v1::ListIncidentsResponse response = ListIncidents(*this, run, rule);
  return {response.incidents().begin(), response.incidents().end()};
}

std::vector<v1::IncidentStatus> Plumbd::Statuses(const std::string& run,
                                                 const std::string& rule) const {
  const v1::ListIncidentsResponse response = ListIncidents(*this, run, rule);
  return {response.status().begin(), response.status().end()};
}

v1::Finding Plumbd::Finding(const std::string& fingerprint) const {
  grpc::ClientContext context;
  context.set_deadline(Soon());
  v1::ListIncidentsRequest request;
  request.set_fingerprint(fingerprint);
  v1::ListIncidentsResponse response;
  (void)v1::Query::NewStub(Channel())->ListIncidents(&context, request, &response);
  return response.incidents_size() == 1 ? response.incidents(0).finding() : v1::Finding();
}

v1::ListVerdictsResponse Plumbd::Verdicts(const std::string& run) const {
  grpc::ClientContext context;
  context.set_deadline(Soon());
  v1::ListVerdictsRequest request;
  request.set_run(run);
  v1::ListVerdictsResponse response;
  (void)v1::Query::NewStub(Channel())->ListVerdicts(&context, request, &response);
  return response;
}

v1::ServerInfo Plumbd::Info() const {
  grpc::ClientContext context;
  context.set_deadline(Soon());
  v1::ServerInfo info;
  (void)v1::Query::NewStub(Channel())->GetServerInfo(&context, {}, &info);
  return info;
}

AgentStream::AgentStream(const Plumbd& server, uint64_t stream_id, std::vector<v1::Source> sources,
                         uint64_t next_sequence, bool directives)
    : AgentStream(server.Channel(), stream_id, std::move(sources), next_sequence, directives) {}

AgentStream::AgentStream(std::shared_ptr<grpc::Channel> channel, uint64_t stream_id,
                         std::vector<v1::Source> sources, uint64_t next_sequence, bool directives)
    : stub_(v1::Ingest::NewStub(channel)),
      stream_([&] {
        // A server that never reads must fail a test, not block it. A slow test waits several
        // times.
        context_.set_deadline(std::chrono::system_clock::now() + 4 * kPatience);
        return stub_->Stream(&context_);
      }()),
      stream_id_(stream_id) {
  v1::AgentMessage message;
  v1::Hello& hello = *message.mutable_hello();
  hello.set_stream_id(stream_id);
  hello.set_protocol(1);
  hello.set_next_sequence(next_sequence);
  hello.set_directives(directives);
  for (const v1::Source& source : sources) *hello.add_sources() = source;
  SendRaw(message);
  reader_ = std::thread([this] { ReadLoop(); });
}

AgentStream::~AgentStream() {
  context_.TryCancel();
  reader_.join();
}

void AgentStream::ReadLoop() {
  v1::ServerMessage message;
  while (stream_->Read(&message)) {
    std::lock_guard lock(mutex_);
    if (message.has_directive()) directives_.push_back(message.directive());
    if (message.has_welcome()) welcome_ = message.welcome().acknowledged();
    if (message.has_ack()) {
      ++acks_;
      acknowledged_ = std::max(acknowledged_, message.ack().sequence());
      for (const auto& r : message.ack().rejected()) rejected_[r.sequence()] = r.reason();
    }
    changed_.notify_all();
  }
  const grpc::Status status = stream_->Finish();
  std::lock_guard lock(mutex_);
  ended_ = true;
  status_ = status;
  changed_.notify_all();
}

bool AgentStream::WaitFor(const std::function<bool()>& condition) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kPatience, [&] { return condition() || ended_; });
  return condition();
}

bool AgentStream::SendRaw(const v1::AgentMessage& message) { return stream_->Write(message); }

bool AgentStream::Send(v1::Batch batch, uint64_t sequence) {
  batch.set_stream_id(stream_id_);
  batch.set_sequence(sequence);
  v1::AgentMessage message;
  *message.mutable_batch() = std::move(batch);
  return SendRaw(message);
}

grpc::Status AgentStream::Finish() {
  stream_->WritesDone();
  return Ended();
}

void AgentStream::Break() { context_.TryCancel(); }

bool AgentStream::Welcomed(uint64_t* acknowledged) {
  const bool ok = WaitFor([this] { return welcome_.has_value(); });
  if (ok && acknowledged != nullptr) *acknowledged = *welcome_;
  return ok;
}

bool AgentStream::Acknowledged(uint64_t sequence) {
  return WaitFor([&] { return acknowledged_ >= sequence; });
}

std::string AgentStream::RejectedReason(uint64_t sequence) {
  WaitFor([&] { return rejected_.contains(sequence); });
  std::lock_guard lock(mutex_);
  const auto found = rejected_.find(sequence);
  return found == rejected_.end() ? "" : found->second;
}

grpc::Status AgentStream::Ended() {
  WaitFor([this] { return ended_; });
  std::lock_guard lock(mutex_);
  return ended_ ? status_ : grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "still open");
}

uint64_t AgentStream::acks() const {
  std::lock_guard lock(mutex_);
  return acks_;
}

uint64_t AgentStream::acknowledged() const {
  std::lock_guard lock(mutex_);
  return acknowledged_;
}

bool AgentStream::over() const {
  std::lock_guard lock(mutex_);
  return ended_;
}

size_t AgentStream::directives() const {
  std::lock_guard lock(mutex_);
  return directives_.size();
}

std::optional<v1::Directive> AgentStream::NextDirective(
    const std::function<bool(const v1::Directive&)>& wanted) {
  std::optional<v1::Directive> found;
  WaitFor([&] {
    while (!found && directives_given_ < directives_.size()) {
      const v1::Directive& next = directives_[directives_given_++];
      if (wanted(next)) found = next;
    }
    return found.has_value();
  });
  return found;
}

v1::Batch LeakingStep(const v1::Source& source, int64_t step, const std::string& layer) {
  v1::Batch batch = audit::DoctorBatch(0);
  *batch.mutable_sources(0) = source;
  batch.mutable_evidence(0)->set_step(step);
  batch.mutable_evidence(0)->mutable_site()->set_layer(layer);
  batch.clear_declarations();
  batch.clear_progress();
  AddProgress(&batch, step);
  return batch;
}

v1::Batch ScalarStep(const v1::Source& source, int64_t step, double value) {
  v1::Batch batch = BatchOf(source);
  AddScalar(&batch, "loss", step, value);
  AddProgress(&batch, step);
  return batch;
}

v1::Batch Goodbye(const v1::Source& source, int64_t last_step) {
  v1::Batch batch = BatchOf(source);
  AddProgress(&batch, last_step).set_finished(true);
  return batch;
}

}  // namespace plumbline::test

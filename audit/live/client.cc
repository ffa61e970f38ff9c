#include "audit/live/client.h"

#include <grpc/support/log.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "plumbline/v1/ingest.grpc.pb.h"
#include "plumbline/v1/query.grpc.pb.h"
#include "transport/credentials.h"
#include "transport/diagnosis.h"

namespace plumbline::audit {
namespace {

std::chrono::system_clock::time_point In(double seconds) {
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(
             std::chrono::duration<double>(seconds));
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const std::string& address) {
  gpr_set_log_function([](gpr_log_func_args*) {});  // errors are in the status of a call
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(256 << 20);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // a proxy cannot reach our loopback
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 300);
  // Despite its name, this is the timeout of a connection attempt: a busy server may need long.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  // Detects that the server's host is gone.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
  return transport::OpenChannel(address, transport::CredentialsFromEnvironment(), arguments);
}

// Returns a channel that reaches no server. If the credentials cannot be used, the first call
// reports that.
std::shared_ptr<grpc::Channel> DeadChannel() {
  return grpc::CreateChannel("unix:/nonexistent", grpc::InsecureChannelCredentials());
}

}  // namespace

class Client::Impl {
 public:
  explicit Impl(const std::string& address)
      : address_(address),
        connected_(Connect(address)),
        channel_(connected_.ok() ? *connected_ : DeadChannel()),
        query_(v1::Query::NewStub(channel_)),
        ingest_(v1::Ingest::NewStub(channel_)) {}

  absl::Status ToAbsl(const grpc::Status& status) const {
    if (status.ok()) return absl::OkStatus();
    if (!connected_.ok()) return connected_.status();
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED)
      return absl::DeadlineExceededError(absl::StrCat(address_, " did not answer in time"));
    const transport::Diagnosis found =
        transport::Diagnose(address_, transport::CredentialsFromEnvironment(), status);
    const auto code = static_cast<absl::StatusCode>(status.error_code());
    return {transport::NeedsChange(found.fault) ? absl::StatusCode::kFailedPrecondition : code,
            found.text};
  }

  template <typename Request, typename Response, typename Method>
  absl::StatusOr<Response> Call(Method method, const Request& request, double seconds) {
    grpc::ClientContext context;
    context.set_deadline(In(seconds));
    Response response;
    const grpc::Status status = (query_.get()->*method)(&context, request, &response);
    if (status.ok()) return response;
    const auto& trailer = context.GetServerTrailingMetadata();
    if (const auto relay = trailer.find(transport::kRelayOf); relay != trailer.end()) {
      const MutexLock lock(mutex_);
      relay_of_.assign(relay->second.data(), relay->second.size());
    }
    return ToAbsl(status);
  }

  // The health protocol has two fields. Debian's headers do not have its generated code.
  absl::Status Health(double seconds) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    context.set_deadline(In(seconds));
    grpc::CompletionQueue queue;
    grpc::ByteBuffer response;
    grpc::Status status;
    const grpc::Slice no_bytes;  // an empty HealthCheckRequest: the server as a whole
    auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check",
                                      grpc::ByteBuffer(&no_bytes, 1), &queue);
    call->StartCall();
    call->Finish(&response, &status, this);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    if (!status.ok()) return ToAbsl(status);
    std::vector<grpc::Slice> slices;
    std::string bytes;
    if (response.Dump(&slices).ok()) {
      for (const grpc::Slice& s : slices)
        bytes.append(reinterpret_cast<const char*>(s.begin()), s.size());
    }
    // HealthCheckResponse{status: SERVING}
    return bytes == "\x08\x01"
               ? absl::OkStatus()
               : absl::UnavailableError(absl::StrCat(address_, " answers, but is not ready"));
  }

  absl::Status Watch(const v1::WatchIncidentsRequest& request,
                     const std::function<bool(const v1::IncidentEvent&)>& on_event) {
    grpc::ClientContext context;
    {
      const MutexLock lock(mutex_);
      if (cancelled_) return absl::CancelledError("cancelled");
      watching_ = &context;
    }
    auto reader = query_->WatchIncidents(&context, request);
    v1::IncidentEvent event;
    bool wanted = true;
    while (wanted && reader->Read(&event)) wanted = on_event(event);
    if (!wanted) context.TryCancel();
    const grpc::Status status = reader->Finish();
    const MutexLock lock(mutex_);
    watching_ = nullptr;
    if (!wanted) return absl::OkStatus();
    if (cancelled_) return absl::CancelledError("cancelled");
    return ToAbsl(status);
  }

  absl::Status ReadRun(const std::string& run,
                       const std::function<bool(const v1::ReadRunResponse&)>& on_message) {
    grpc::ClientContext context;
    v1::ReadRunRequest request;
    request.set_run(run);
    auto reader = query_->ReadRun(&context, request);
    v1::ReadRunResponse message;
    bool wanted = true, ended = false;
    while (wanted && reader->Read(&message)) {
      ended = message.has_end();
      wanted = on_message(message);
    }
    if (!wanted) context.TryCancel();
    const grpc::Status status = reader->Finish();
    if (!wanted) return absl::OkStatus();
    if (status.ok() && !ended) {
      return absl::DataLossError(
          absl::StrCat(address_, " ended the list of items before the last one"));
    }
    return ToAbsl(status);
  }

  absl::Status ReadCapsule(const std::string& fingerprint,
                           const std::function<bool(const v1::GetCapsuleResponse&)>& on_message) {
    grpc::ClientContext context;
    v1::GetCapsuleRequest request;
    request.set_fingerprint(fingerprint);
    auto reader = query_->GetCapsule(&context, request);
    v1::GetCapsuleResponse message;
    bool wanted = true;
    while (wanted && reader->Read(&message)) wanted = on_message(message);
    if (!wanted) context.TryCancel();
    const grpc::Status status = reader->Finish();
    return wanted ? ToAbsl(status) : absl::OkStatus();
  }

  bool AwaitServer(double seconds) { return channel_->WaitForConnected(In(seconds)); }

  std::string RelayOf() const {
    const MutexLock lock(mutex_);
    return relay_of_;
  }

  void Cancel() {
    const MutexLock lock(mutex_);
    cancelled_ = true;
    if (watching_ != nullptr) watching_->TryCancel();
  }

  absl::Status Deliver(const v1::Hello& hello, const v1::Batch& batch, double seconds) {
    grpc::ClientContext context;
    context.set_deadline(In(seconds));
    auto stream = ingest_->Stream(&context);
    v1::AgentMessage message;
    *message.mutable_hello() = hello;
    v1::ServerMessage answer;
    bool ok = stream->Write(message);
    *message.mutable_batch() = batch;
    ok = ok && stream->Write(message);
    bool acknowledged = false;
    std::string refused;
    while (ok && !acknowledged && stream->Read(&answer)) {
      if (!answer.has_ack()) continue;
      acknowledged = answer.ack().sequence() >= batch.sequence();
      if (answer.ack().rejected_size() > 0) refused = answer.ack().rejected(0).reason();
    }
    stream->WritesDone();
    while (stream->Read(&answer)) {
    }
    const grpc::Status status = stream->Finish();
    if (!refused.empty()) return absl::InvalidArgumentError(refused);
    if (!status.ok()) return ToAbsl(status);
    return acknowledged ? absl::OkStatus() : absl::InternalError("the batch was not acknowledged");
  }

  v1::Query::Stub& query() { return *query_; }

 private:
  const std::string address_;
  const absl::StatusOr<std::shared_ptr<grpc::Channel>> connected_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Query::Stub> query_;
  std::unique_ptr<v1::Ingest::Stub> ingest_;
  mutable Mutex mutex_;
  grpc::ClientContext* watching_ PLUMB_GUARDED_BY(mutex_) = nullptr;
  bool cancelled_ PLUMB_GUARDED_BY(mutex_) = false;
  std::string relay_of_ PLUMB_GUARDED_BY(mutex_);
};

Client::Client(const std::string& address) : impl_(std::make_unique<Impl>(address)) {}
Client::~Client() = default;

absl::Status Client::Health(double timeout_seconds) { return impl_->Health(timeout_seconds); }

absl::StatusOr<v1::ServerInfo> Client::Info(double timeout_seconds) {
  return impl_->Call<v1::GetServerInfoRequest, v1::ServerInfo>(&v1::Query::Stub::GetServerInfo, {},
                                                               timeout_seconds);
}

absl::StatusOr<v1::ListRunsResponse> Client::Runs(double timeout_seconds) {
  return impl_->Call<v1::ListRunsRequest, v1::ListRunsResponse>(&v1::Query::Stub::ListRuns, {},
                                                                timeout_seconds);
}

absl::StatusOr<v1::ListIncidentsResponse> Client::Incidents(const v1::ListIncidentsRequest& request,
                                                            double timeout_seconds) {
  return impl_->Call<v1::ListIncidentsRequest, v1::ListIncidentsResponse>(
      &v1::Query::Stub::ListIncidents, request, timeout_seconds);
}

absl::StatusOr<v1::ListVerdictsResponse> Client::Verdicts(const std::string& run,
                                                          double timeout_seconds) {
  v1::ListVerdictsRequest request;
  request.set_run(run);
  return impl_->Call<v1::ListVerdictsRequest, v1::ListVerdictsResponse>(
      &v1::Query::Stub::ListVerdicts, request, timeout_seconds);
}

absl::Status Client::UpdateRun(const std::string& run, v1::UpdateRunRequest::Action action,
                               double timeout_seconds) {
  v1::UpdateRunRequest request;
  request.set_run(run);
  request.set_action(action);
  return impl_
      ->Call<v1::UpdateRunRequest, v1::UpdateRunResponse>(&v1::Query::Stub::UpdateRun, request,
                                                          timeout_seconds)
      .status();
}

absl::StatusOr<v1::RunLabels> Client::EditRun(const v1::RunEdit& edit, double timeout_seconds) {
  v1::UpdateRunRequest request;
  request.set_run(edit.run());
  *request.mutable_edit() = edit;
  const auto response = impl_->Call<v1::UpdateRunRequest, v1::UpdateRunResponse>(
      &v1::Query::Stub::UpdateRun, request, timeout_seconds);
  if (!response.ok()) return response.status();
  return response->labels();
}

absl::StatusOr<v1::ListIncidentHistoryResponse> Client::History(const std::string& fingerprint,
                                                                double timeout_seconds) {
  v1::ListIncidentHistoryRequest request;
  request.set_fingerprint(fingerprint);
  return impl_->Call<v1::ListIncidentHistoryRequest, v1::ListIncidentHistoryResponse>(
      &v1::Query::Stub::ListIncidentHistory, request, timeout_seconds);
}

absl::StatusOr<v1::UpdateIncidentResponse> Client::Update(const v1::IncidentUpdate& update,
                                                          double timeout_seconds) {
  v1::UpdateIncidentRequest request;
  *request.mutable_update() = update;
  return impl_->Call<v1::UpdateIncidentRequest, v1::UpdateIncidentResponse>(
      &v1::Query::Stub::UpdateIncident, request, timeout_seconds);
}

absl::StatusOr<v1::ListSeriesResponse> Client::ListSeries(const v1::ListSeriesRequest& request,
                                                          double timeout_seconds) {
  return impl_->Call<v1::ListSeriesRequest, v1::ListSeriesResponse>(&v1::Query::Stub::ListSeries,
                                                                    request, timeout_seconds);
}

absl::StatusOr<v1::QuerySeriesResponse> Client::QuerySeries(const v1::QuerySeriesRequest& request,
                                                            double timeout_seconds) {
  return impl_->Call<v1::QuerySeriesRequest, v1::QuerySeriesResponse>(&v1::Query::Stub::QuerySeries,
                                                                      request, timeout_seconds);
}

absl::StatusOr<v1::ListCapsulesResponse> Client::Capsules(const v1::ListCapsulesRequest& request,
                                                          double timeout_seconds) {
  return impl_->Call<v1::ListCapsulesRequest, v1::ListCapsulesResponse>(
      &v1::Query::Stub::ListCapsules, request, timeout_seconds);
}

absl::StatusOr<v1::RequestCapsuleResponse> Client::RequestCapsule(
    const v1::RequestCapsuleRequest& request, double timeout_seconds) {
  return impl_->Call<v1::RequestCapsuleRequest, v1::RequestCapsuleResponse>(
      &v1::Query::Stub::RequestCapsule, request, timeout_seconds);
}

absl::Status Client::ReadCapsule(
    const std::string& fingerprint,
    const std::function<bool(const v1::GetCapsuleResponse&)>& on_message) {
  return impl_->ReadCapsule(fingerprint, on_message);
}

absl::Status Client::ReadRun(const std::string& run,
                             const std::function<bool(const v1::ReadRunResponse&)>& on_message) {
  return impl_->ReadRun(run, on_message);
}

absl::Status Client::Watch(const v1::WatchIncidentsRequest& request,
                           const std::function<bool(const v1::IncidentEvent&)>& on_event) {
  return impl_->Watch(request, on_event);
}

bool Client::AwaitServer(double seconds) { return impl_->AwaitServer(seconds); }

std::string Client::RelayOf() const { return impl_->RelayOf(); }

void Client::Cancel() { impl_->Cancel(); }

absl::Status Client::Deliver(const v1::Hello& hello, const v1::Batch& batch,
                             double timeout_seconds) {
  return impl_->Deliver(hello, batch, timeout_seconds);
}

}  // namespace plumbline::audit

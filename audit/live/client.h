// A client of plumbd. Hides gRPC's headers from all other files.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plumbline/v1/ingest.pb.h"
#include "plumbline/v1/query.pb.h"

namespace plumbline::audit {

// Thread-safe. Every call waits at most its timeout. If no server listens, returns Unavailable.
class Client {
 public:
  explicit Client(const std::string& address);
  ~Client();

  // Returns OK if the server reports that it serves.
  absl::Status Health(double timeout_seconds);
  absl::StatusOr<v1::ServerInfo> Info(double timeout_seconds);
  absl::StatusOr<v1::ListRunsResponse> Runs(double timeout_seconds);
  absl::StatusOr<v1::ListIncidentsResponse> Incidents(const v1::ListIncidentsRequest& request,
                                                      double timeout_seconds);
  absl::StatusOr<v1::ListVerdictsResponse> Verdicts(const std::string& run, double timeout_seconds);

  absl::StatusOr<v1::ListIncidentHistoryResponse> History(const std::string& fingerprint,
                                                          double timeout_seconds);
  absl::StatusOr<v1::UpdateIncidentResponse> Update(const v1::IncidentUpdate& update,
                                                    double timeout_seconds);
  absl::Status UpdateRun(const std::string& run, v1::UpdateRunRequest::Action action,
                         double timeout_seconds);
  absl::StatusOr<v1::RunLabels> EditRun(const v1::RunEdit& edit, double timeout_seconds);
  absl::StatusOr<v1::ListSeriesResponse> ListSeries(const v1::ListSeriesRequest& request,
                                                    double timeout_seconds);
  absl::StatusOr<v1::QuerySeriesResponse> QuerySeries(const v1::QuerySeriesRequest& request,
                                                      double timeout_seconds);

  // Reads everything that the server's journal holds of a run. Calls `on_message` for each message
  // until it returns false (OK) or the stream ends. If it ends before its last message, returns
  // DataLoss.
  absl::Status ReadRun(const std::string& run,
                       const std::function<bool(const v1::ReadRunResponse&)>& on_message);

  absl::StatusOr<v1::ListCapsulesResponse> Capsules(const v1::ListCapsulesRequest& request,
                                                    double timeout_seconds);
  absl::StatusOr<v1::RequestCapsuleResponse> RequestCapsule(
      const v1::RequestCapsuleRequest& request, double timeout_seconds);
  // Like ReadRun: first the info, then the content of the capsule.
  absl::Status ReadCapsule(const std::string& fingerprint,
                           const std::function<bool(const v1::GetCapsuleResponse&)>& on_message);

  // Calls `on_event` for each event until it returns false (OK), the server ends the stream (its
  // status) or Cancel is called (Cancelled).
  absl::Status Watch(const v1::WatchIncidentsRequest& request,
                     const std::function<bool(const v1::IncidentEvent&)>& on_event);
  // Waits for a server, by polling: a server that comes back is found within half a second. Returns
  // true if it is connected.
  bool AwaitServer(double seconds);
  // If a call found that this server is a relay, returns the address of the server above; otherwise
  // "".
  std::string RelayOf() const;
  // Ends all Watch calls, current and later.
  void Cancel();

  // Sends one batch as an agent would, and waits for its acknowledgement.
  absl::Status Deliver(const v1::Hello& hello, const v1::Batch& batch, double timeout_seconds);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace plumbline::audit

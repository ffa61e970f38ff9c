// Access control: gRPC calls it before each call, the services for each run, and HTTP for each
// request.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "server/access/access_list.h"
#include "server/access/methods.h"
#include "server/access/web_sessions.h"
#include "server/process/counters.h"
#include "server/settings/config.h"

namespace plumbline::server {

// The permissions of one call, while it lasts. Thread-safe.
class Lease {
 public:
  Lease(Caller caller, Grant grant, Counters* counters)
      : caller_(std::move(caller)), grant_(std::move(grant)), counters_(counters) {}

  // Returns the lease of a server without access control.
  static std::shared_ptr<Lease> ForEverything() {
    return std::make_shared<Lease>(Caller(), Grant::Everything(), nullptr);
  }

  // If the permission is missing, returns PermissionDenied with the run, the scope and the access
  // entry, and counts it.
  absl::Status Check(Scope scope, const std::string& run) const;
  // Does the same without a count and a message. Used to leave out data that the caller may not
  // read.
  bool Over(Scope scope, const std::string& run) const { return grant_.Over(scope, run); }
  bool Somewhere(Scope scope) const { return grant_.Somewhere(scope); }
  bool Everywhere(Scope scope) const { return grant_.Everywhere(scope); }
  std::string Names() const { return grant_.Names(); }  // empty: no access control

  // Sets `end`, which runs once, on the gate's thread, when the token expires or is revoked; it
  // must be quick. Runs it at once if that has already happened.
  void OnRevoked(std::function<void(const absl::Status&)> end);

 private:
  friend class Gate;
  void Revoke(const absl::Status& why);

  const Caller caller_;
  const Grant grant_;
  Counters* const counters_;
  Mutex mutex_;
  absl::Status revoked_ PLUMB_GUARDED_BY(mutex_);
  std::function<void(const absl::Status&)> end_ PLUMB_GUARDED_BY(mutex_);
};

// Thread-safe.
class Gate {
 public:
  // Opens the gate. `counters` must outlive it. Returns InvalidArgument or another error if a file
  // of [tls] or [[access]] cannot be used; the message names the file and the reason.
  static absl::StatusOr<std::unique_ptr<Gate>> Open(const Config& config, Counters* counters);
  ~Gate();

  // Returns false if there is no [[access]], so that no credentials are required (except a
  // certificate that TLS requires).
  bool guarded() const { return access_ != nullptr; }

  // Returns the next expiry of the tokens of each entry, if they expire.
  std::vector<AccessList::Expiry> TokenExpiries() const;

  // Returns the credentials of a listener, with TLS or without; this gate, which must outlive the
  // server, admits its calls.
  std::shared_ptr<grpc::ServerCredentials> ListenerCredentials(const std::string& address);

  // Checks whether this caller may call the method at all. Returns Unauthenticated or
  // PermissionDenied; counted.
  absl::Status Admit(std::string_view path, const Caller& caller);

  // Returns the lease of an admitted call; never null. Keep it as long as the call lasts.
  std::shared_ptr<Lease> Enter(const grpc::ServerContextBase& context);

  // Checks whether the sender of this Authorization header (or, without one, of this session id)
  // may read data of all runs.
  absl::Status AdmitHttp(std::string_view authorization, std::string_view session);

  // Returns the permissions of the sender of this Authorization header or, without one, of this
  // session id. Keep the lease while the request is answered. Returns Unauthenticated; counted.
  absl::StatusOr<std::shared_ptr<Lease>> EnterHttp(std::string_view authorization,
                                                   std::string_view session);

  // Opens a session for a sender of this Authorization header that may read something. Returns an
  // empty id without access control. The session ends when its token does. Returns Unauthenticated
  // or PermissionDenied; counted.
  absl::StatusOr<std::string> OpenSession(std::string_view authorization);
  // Closes the session: its id is no longer accepted.
  void CloseSession(std::string_view session) { sessions_.Close(session); }

 private:
  Gate(const Config& config, Counters* counters);
  void Watch();
  void LookAgain();
  // Returns true for a call that a relay answers with the address of its upstream server: any
  // caller with a valid token may get it.
  bool Refers(const MethodRule& rule) const {
    return !config_.relay_upstream.empty() && rule.scope != Scope::kWrite;
  }
  bool requires_certificates() const { return !config_.tls_client_ca.empty(); }
  absl::StatusOr<Grant> Identify(const Caller& caller) const;
  Caller HttpCallerOf(std::string_view authorization, std::string_view session) const;
  absl::StatusOr<Grant> IdentifyHttp(const Caller& caller);
  absl::Status Forbidden(const Grant& grant, const char* needed);
  void Report(std::string_view path, const absl::Status& denied);

  const Config config_;
  Counters* const counters_;
  std::unique_ptr<AccessList> access_;  // null: not guarded
  const std::shared_ptr<Lease> open_lease_;
  WebSessions sessions_;

  mutable Mutex mutex_;
  RevocationList revoked_ PLUMB_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<Lease>> leases_ PLUMB_GUARDED_BY(mutex_);
  std::vector<std::string> problems_ PLUMB_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point stated_ PLUMB_GUARDED_BY(mutex_){};
  uint64_t unsaid_ PLUMB_GUARDED_BY(mutex_) = 0;
  CondVar wake_;
  bool stopped_ PLUMB_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace plumbline::server

// Who may call what: asked by gRPC before each call, by the services about runs, by HTTP.
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

// What one call may do, as long as it lasts. Thread-safe.
class Lease {
 public:
  Lease(Caller caller, Grant grant, Counters* counters)
      : caller_(std::move(caller)), grant_(std::move(grant)), counters_(counters) {}

  // Of a server that asks nobody.
  static std::shared_ptr<Lease> ForEverything() {
    return std::make_shared<Lease>(Caller(), Grant::Everything(), nullptr);
  }

  // PermissionDenied names the run, the scope and whose grant it is; counted.
  absl::Status Check(Scope scope, const std::string& run) const;
  // Without a count and a text: to leave out what the caller may not see.
  bool Over(Scope scope, const std::string& run) const { return grant_.Over(scope, run); }
  bool Somewhere(Scope scope) const { return grant_.Somewhere(scope); }
  bool Everywhere(Scope scope) const { return grant_.Everywhere(scope); }
  std::string Names() const { return grant_.Names(); }  // empty: nobody was asked

  // `end` runs once, on the gate's thread, when the token expires or is revoked; it must be quick.
  // At once, when that has happened.
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
  // `counters` must outlive it. InvalidArgument and others: a file of [tls] or [[access]] cannot be
  // used; the message says which and why.
  static absl::StatusOr<std::unique_ptr<Gate>> Open(const Config& config, Counters* counters);
  ~Gate();

  // False: there is no [[access]], and nobody is asked (but for the certificate that TLS wants).
  bool guarded() const { return access_ != nullptr; }

  // When the tokens of the entries run out next, for those that do.
  std::vector<AccessList::Expiry> TokenExpiries() const;

  // Of a listener: TLS or none; calls are admitted by this gate, which must outlive the server.
  std::shared_ptr<grpc::ServerCredentials> ListenerCredentials(const std::string& address);

  // May this caller call that method at all? Unauthenticated or PermissionDenied; counted.
  absl::Status Admit(std::string_view path, const Caller& caller);

  // Of a call that was admitted. Never null; keep it as long as the call lasts.
  std::shared_ptr<Lease> Enter(const grpc::ServerContextBase& context);

  // May who sends this Authorization header, or else this session's id, read what is about all
  // runs?
  absl::Status AdmitHttp(std::string_view authorization, std::string_view session);

  // What who sends this Authorization header, or else this session's id, may do; keep it as long as
  // they are answered. Unauthenticated; counted.
  absl::StatusOr<std::shared_ptr<Lease>> EnterHttp(std::string_view authorization,
                                                   std::string_view session);

  // A session for who sends this Authorization header and may read something; empty: nobody is
  // asked here. It ends when its token does. Unauthenticated or PermissionDenied; counted.
  absl::StatusOr<std::string> OpenSession(std::string_view authorization);
  // Whoever holds the id is asked for a token again.
  void CloseSession(std::string_view session) { sessions_.Close(session); }

 private:
  Gate(const Config& config, Counters* counters);
  void Watch();
  void LookAgain();
  // True for a call that a relay answers with the address of the server above: any caller with a
  // valid token may have it.
  bool Refers(const MethodRule& rule) const {
    return !config_.relay_upstream.empty() && rule.scope != Scope::kWrite;
  }
  bool asks_certificates() const { return !config_.tls_client_ca.empty(); }
  absl::StatusOr<Grant> Identify(const Caller& caller) const;
  Caller HttpCallerOf(std::string_view authorization, std::string_view session) const;
  absl::StatusOr<Grant> IdentifyHttp(const Caller& caller);
  absl::Status Forbidden(const Grant& grant, const char* needed);
  void Say(std::string_view path, const absl::Status& denied);

  const Config config_;
  Counters* const counters_;
  std::unique_ptr<AccessList> access_;  // null: not guarded
  const std::shared_ptr<Lease> open_lease_;
  WebSessions sessions_;

  mutable Mutex mutex_;
  RevocationList revoked_ PLUMB_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<Lease>> leases_ PLUMB_GUARDED_BY(mutex_);
  std::vector<std::string> problems_ PLUMB_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point said_ PLUMB_GUARDED_BY(mutex_){};
  uint64_t unsaid_ PLUMB_GUARDED_BY(mutex_) = 0;
  CondVar wake_;
  bool stopped_ PLUMB_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace plumbline::server

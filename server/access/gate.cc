#include "server/access/gate.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "server/access/methods.h"
#include "server/access/tls.h"
#include "server/process/grpc_status.h"
#include "server/process/log.h"

namespace plumbline::server {
namespace {

constexpr std::chrono::seconds kLookAgain{1};
constexpr const char* kCertificateProperty = "x509_pem_cert";

int64_t NowUnixSeconds() { return static_cast<int64_t>(UnixNs() / 1'000'000'000); }

std::string_view View(const grpc::string_ref& text) { return {text.data(), text.size()}; }

// Parses "Bearer TOKEN"; the scheme in any case (RFC 9110).
std::optional<TokenDigest> TokenOf(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  const std::string_view scheme = authorization.substr(0, kScheme.size());
  if (!absl::EqualsIgnoreCase({scheme.data(), scheme.size()}, {kScheme.data(), kScheme.size()})) {
    return std::nullopt;
  }
  return DigestOf(authorization.substr(kScheme.size()));
}

using Metadata = std::multimap<grpc::string_ref, grpc::string_ref>;

Caller CallerOf(const Metadata& metadata, const grpc::AuthContext* connection) {
  Caller caller;
  if (connection != nullptr) {
    for (const grpc::string_ref& pem : connection->FindPropertyValues(kCertificateProperty)) {
      caller.certificate = ReadClientCertificate(std::string(View(pem)));
    }
  }
  const auto header = metadata.find("authorization");
  if (header != metadata.end()) caller.token = TokenOf(View(header->second));
  return caller;
}

// Called by gRPC for every call of a listener, before any service gets the call.
class Doorkeeper : public grpc::AuthMetadataProcessor {
 public:
  explicit Doorkeeper(Gate* gate) : gate_(gate) {}
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* connection,
                       OutputMetadata*, OutputMetadata*) override {
    const auto path = metadata.find(":path");
    return ToGrpc(gate_->Admit(path == metadata.end() ? "" : View(path->second),
                               CallerOf(metadata, connection)));
  }

 private:
  Gate* const gate_;
};

}  // namespace

absl::Status Lease::Check(Scope scope, const std::string& run) const {
  if (grant_.Over(scope, run)) return absl::OkStatus();
  ++counters_->forbidden;
  return absl::PermissionDeniedError(absl::StrCat("run \"", run, "\": the access entry ",
                                                  grant_.Names(), " does not grant ",
                                                  ScopeName(scope), " over it"));
}

void Lease::OnRevoked(std::function<void(const absl::Status&)> end) {
  absl::Status revoked;
  {
    const MutexLock lock(mutex_);
    if (revoked_.ok()) {
      end_ = std::move(end);
      return;
    }
    revoked = revoked_;
  }
  end(revoked);
}

void Lease::Revoke(const absl::Status& why) {
  std::function<void(const absl::Status&)> end;
  {
    const MutexLock lock(mutex_);
    if (!revoked_.ok()) return;
    revoked_ = why;
    end.swap(end_);
  }
  if (end) end(why);
}

Gate::Gate(const Config& config, Counters* counters)
    : config_(config),
      counters_(counters),
      open_lease_(Lease::ForEverything()),
      revoked_(config.tls_revoked) {}

absl::StatusOr<std::unique_ptr<Gate>> Gate::Open(const Config& config, Counters* counters) {
  ConfigMistakes mistakes;
  CheckTlsFiles(config, &mistakes);
  if (auto s = mistakes.ToStatus(); !s.ok()) return s;
  std::unique_ptr<Gate> gate(new Gate(config, counters));
  {
    const MutexLock lock(gate->mutex_);
    if (auto s = gate->revoked_.Refresh(); !s.ok()) return s;
  }
  if (!config.access.empty()) {
    auto access = AccessList::Open(config.access);
    if (!access.ok()) return access.status();
    gate->access_ = *std::move(access);
  }
  if (!gate->guarded() && !gate->requires_certificates()) return gate;
  gate->thread_ = std::thread([raw = gate.get()] { raw->Watch(); });
  return gate;
}

Gate::~Gate() {
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
  }
  wake_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<grpc::ServerCredentials> Gate::ListenerCredentials(const std::string& address) {
  auto credentials = MakeServerCredentials(config_, address);
  if (guarded() || requires_certificates()) {
    credentials->SetAuthMetadataProcessor(std::make_shared<Doorkeeper>(this));
  }
  return credentials;
}

// Identifies the caller. A connection may last for weeks, so a certificate that TLS accepted is
// checked again.
absl::StatusOr<Grant> Gate::Identify(const Caller& caller) const {
  const int64_t now = NowUnixSeconds();
  if (caller.certificate) {
    if (now >= caller.certificate->expires_unix_s) {
      return absl::UnauthenticatedError("this certificate has expired: present a renewed one");
    }
    const MutexLock lock(mutex_);
    if (revoked_.Holds(*caller.certificate)) {
      return absl::UnauthenticatedError("this certificate was revoked");
    }
  }
  return guarded() ? access_->Identify(caller, now) : Grant::Everything();
}

std::vector<AccessList::Expiry> Gate::TokenExpiries() const {
  if (!guarded()) return {};
  return access_->NextExpiries(NowUnixSeconds());
}

absl::Status Gate::Admit(std::string_view path, const Caller& caller) {
  const MethodRule rule = RuleOfMethod(path);
  if (rule.anyone) return absl::OkStatus();
  const auto grant = Identify(caller);
  absl::Status status = grant.status();
  if (!status.ok()) {
    ++counters_->unauthenticated;
  } else if (Refers(rule)) {
    return absl::OkStatus();
  } else if (!grant->Somewhere(rule.scope) || (!rule.by_run && !grant->Everywhere(rule.scope))) {
    ++counters_->forbidden;
    status = absl::PermissionDeniedError(absl::StrCat(
        "this call needs the scope ", ScopeName(rule.scope), rule.by_run ? "" : " over every run",
        ", which the access entry ", grant->Names(), " does not give"));
  }
  if (!status.ok()) Report(path, status);
  return status;
}

std::shared_ptr<Lease> Gate::Enter(const grpc::ServerContextBase& context) {
  if (!guarded() && !requires_certificates()) return open_lease_;
  Caller caller = CallerOf(context.client_metadata(), context.auth_context().get());
  auto grant = Identify(caller);
  const absl::Status status = grant.status();
  auto lease = std::make_shared<Lease>(std::move(caller), status.ok() ? *std::move(grant) : Grant(),
                                       counters_);
  if (!status.ok()) {  // the permission was revoked after the call was admitted
    lease->Revoke(status);
    return lease;
  }
  const MutexLock lock(mutex_);
  leases_.push_back(lease);
  return lease;
}

absl::StatusOr<Grant> Gate::IdentifyHttp(const Caller& caller) {
  auto grant = Identify(caller);
  if (!grant.ok()) ++counters_->unauthenticated;
  return grant;
}

absl::Status Gate::Forbidden(const Grant& grant, const char* needed) {
  ++counters_->forbidden;
  return absl::PermissionDeniedError(absl::StrCat(
      "this needs ", needed, ", which the access entry ", grant.Names(), " does not give"));
}

Caller Gate::HttpCallerOf(std::string_view authorization, std::string_view session) const {
  Caller caller;
  if (authorization.empty()) caller.session = session;
  caller.token =
      authorization.empty() ? sessions_.TokenOf(session, NowUnixSeconds()) : TokenOf(authorization);
  return caller;
}

absl::StatusOr<std::shared_ptr<Lease>> Gate::EnterHttp(std::string_view authorization,
                                                       std::string_view session) {
  if (!guarded()) return open_lease_;
  Caller caller = HttpCallerOf(authorization, session);
  auto grant = IdentifyHttp(caller);
  if (!grant.ok()) return grant.status();
  auto lease = std::make_shared<Lease>(std::move(caller), *std::move(grant), counters_);
  const MutexLock lock(mutex_);
  leases_.push_back(lease);
  return lease;
}

absl::Status Gate::AdmitHttp(std::string_view authorization, std::string_view session) {
  if (!guarded()) return absl::OkStatus();
  const Caller caller = HttpCallerOf(authorization, session);
  const auto grant = IdentifyHttp(caller);
  if (!grant.ok()) return grant.status();
  if (grant->Everywhere(Scope::kRead)) return absl::OkStatus();
  return Forbidden(*grant, "the scope read over every run");
}

absl::StatusOr<std::string> Gate::OpenSession(std::string_view authorization) {
  if (!guarded()) return std::string();
  Caller caller;
  caller.token = TokenOf(authorization);
  const auto grant = IdentifyHttp(caller);
  if (!grant.ok()) return grant.status();
  if (!grant->Somewhere(Scope::kRead)) return Forbidden(*grant, "the scope read");
  return sessions_.Open(*caller.token, NowUnixSeconds());
}

// Ends the calls of revoked and expired tokens and certificates.
void Gate::Watch() {
  MutexLock lock(mutex_);
  while (!wake_.WaitFor(lock, kLookAgain, [this]() PLUMB_REQUIRES(mutex_) { return stopped_; })) {
    lock.Unlock();
    LookAgain();
    lock.Lock();
  }
}

void Gate::LookAgain() {
  std::vector<std::string> problems;
  if (guarded()) problems = access_->Refresh();
  std::vector<std::shared_ptr<Lease>> leases;
  {
    const MutexLock lock(mutex_);
    const absl::Status revoked = revoked_.Refresh();
    if (!revoked.ok()) problems.emplace_back(revoked.message());
    std::erase_if(leases_, [](const auto& lease) { return lease.expired(); });
    for (const auto& weak : leases_) {
      if (auto lease = weak.lock()) leases.push_back(std::move(lease));
    }
    if (problems != problems_) {
      for (const std::string& problem : problems) {
        LogError("{}; access through it is refused until this is fixed", problem);
      }
      if (problems.empty()) LogInfo("all lists of tokens and certificates are readable again");
      problems_ = std::move(problems);
    }
  }
  for (const auto& lease : leases) {
    const std::string& session = lease->caller_.session;
    if (!session.empty() && !sessions_.TokenOf(session, NowUnixSeconds())) {
      ++counters_->revoked_calls;
      lease->Revoke(absl::UnauthenticatedError("this session has ended: sign in again"));
      continue;
    }
    const auto grant = Identify(lease->caller_);
    if (grant.ok() && *grant == lease->grant_) continue;
    ++counters_->revoked_calls;
    lease->Revoke(grant.ok()
                      ? absl::UnauthenticatedError("your access rights have changed: connect again")
                      : grant.status());
  }
}

// Logs at most one line per second, because ten thousand agents with an old token may retry every
// few seconds.
void Gate::Report(std::string_view path, const absl::Status& denied) {
  uint64_t unsaid = 0;
  {
    const MutexLock lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (now - stated_ < kLookAgain) {
      ++unsaid_;
      return;
    }
    stated_ = now;
    unsaid = std::exchange(unsaid_, 0);
  }
  LogWarning("refused {:?}: {:?}{}", std::string(path), std::string(denied.message()),
             unsaid == 0 ? "" : absl::StrCat(" (and ", unsaid, " more since the last line)"));
}

}  // namespace plumbline::server

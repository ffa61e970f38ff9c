#include "server/config.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/address.h"

namespace plumbline::server {
namespace {

absl::Status CheckRange(const char* name, double value, double low, double high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " must be between ", low, " and ", high, ", found ", value));
}

absl::Status CheckPort(const char* name, const std::string& address) {
  if (IsAddress(address)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " must be HOST:PORT, found \"", address, "\""));
}

// Tokens must not cross a network in the clear, whatever --insecure allows; and gRPC knows only
// these as local.
absl::Status CheckGuardedAddress(const char* name, const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  if (host == "unix" || host == "127.0.0.1" || host == "[::1]" || host == "localhost" ||
      IsSocketPath(address)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name, " ", address,
                   ": with [[access]] and without [tls] it must be on "
                   "127.0.0.1, [::1], localhost or unix:PATH: tokens do not cross a network in the "
                   "clear"));
}

absl::Status CheckAddress(const char* name, const std::string& address, const Config& c) {
  if (auto s = CheckPort(name, address); !s.ok()) return s;
  const bool encrypted = !c.tls_cert.empty();
  if (!c.access.empty() && !encrypted) return CheckGuardedAddress(name, address);
  if (IsLoopback(address) || c.insecure || (encrypted && !c.access.empty())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      name, " ", address, " is not a loopback address and ",
      encrypted
          ? "whoever reaches it could do everything: say who may in [[access]] (\"encrypted\" "
            "is not \"authenticated\")"
          : "nothing would be encrypted or authenticated: give [tls] and [[access]] in the "
            "configuration file, use 127.0.0.1 behind a tunnel",
      ", or --insecure on a network you trust (docs/security.md)"));
}

absl::Status CheckTls(const Config& c) {
  if (c.tls_cert.empty() != c.tls_key.empty()) {
    return absl::InvalidArgumentError(c.tls_cert.empty()
                                          ? "tls.key is set and tls.cert is not: both, or neither"
                                          : "tls.cert is set and tls.key is not: both, or neither");
  }
  if (!c.tls_client_ca.empty() && c.tls_cert.empty()) {
    return absl::InvalidArgumentError(
        "tls.client_ca needs tls.cert and tls.key: only TLS clients show certificates");
  }
  return absl::OkStatus();
}

absl::Status CheckScopes(const AccessEntry& entry) {
  for (const std::string& scope : entry.scopes) {
    if (scope == "read" || scope == "write" || scope == "admin") continue;
    return absl::InvalidArgumentError(absl::StrCat("access \"", entry.name, "\": scope \"", scope,
                                                   "\", expected read, write or admin"));
  }
  if (!entry.scopes.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "access \"", entry.name, "\": scopes is empty, expected some of read, write, admin"));
}

absl::Status CheckAccess(const Config& c) {
  std::set<std::string> names;
  for (const AccessEntry& entry : c.access) {
    if (entry.name.empty() || !names.insert(entry.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("each [[access]] needs a name of its own, found \"", entry.name, "\" ",
                       entry.name.empty() ? "" : "twice"));
    }
    if (auto s = CheckScopes(entry); !s.ok()) return s;
    if (entry.san.empty() && entry.token_file.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "access \"", entry.name, "\" lets everybody in: expected san, token_file or both"));
    }
    if (!entry.san.empty() && c.tls_client_ca.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "access \"", entry.name,
          "\": a san is known only of clients that show a certificate: set tls.client_ca"));
    }
    if (entry.runs.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("access \"", entry.name, "\": runs is empty, expected globs or [\"*\"]"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRelay(const Config& c) {
  if (c.relay_upstream.empty()) return absl::OkStatus();
  if (!c.data_directory.empty() || !c.rules.empty() || !c.settings.empty()) {
    return absl::InvalidArgumentError(
        "--relay judges and keeps nothing: --data, --rules and --set belong to the server above "
        "(agents keep what it has not acknowledged, in their spools)");
  }
  if (!c.alerts.routes.empty()) {
    return absl::InvalidArgumentError(
        c.alerts.routes[0].where +
        ": a relay knows no incidents: [[alerts.route]] belongs to the server above");
  }
  if (c.relay_upstream == c.grpc) {
    return absl::InvalidArgumentError("--relay " + c.relay_upstream + " is its own address");
  }
  if (auto s = CheckPort("--relay", c.relay_upstream); !s.ok()) return s;
  if (!c.relay_tls_ca.empty() || IsLoopback(c.relay_upstream) || c.insecure) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--relay ", c.relay_upstream,
                   " is not a loopback address and the connection would not be encrypted: name the "
                   "server's authority in relay.tls_ca, or --insecure on a network you trust"));
}

}  // namespace

bool IsLoopback(const std::string& address) { return IsLoopbackAddress(address); }

absl::Status ValidateConfig(const Config& c) {
  if (auto s = CheckTls(c); !s.ok()) return s;
  if (auto s = CheckAccess(c); !s.ok()) return s;
  if (auto s = CheckAddress("--grpc", c.grpc, c); !s.ok()) return s;
  if (c.http != "off") {
    if (auto s = CheckAddress("--http", c.http, c); !s.ok()) return s;
  }
  if (auto s = CheckRelay(c); !s.ok()) return s;
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  const struct {
    const char* name;
    double value, low, high;
  } ranges[] = {
      {"ingest.grace_seconds", c.grace_seconds, 0, 86400},
      {"ingest.ack_seconds", c.ack_seconds, 0.01, 60},
      {"ingest.ack_batches", static_cast<double>(c.ack_batches), 1, 1e6},
      {"ingest.queue_bytes", static_cast<double>(c.queue_bytes), 1 << 20, 1024 * kGiB},
      {"ingest.message_bytes", static_cast<double>(c.message_bytes), 1 << 16, kGiB},
      {"ingest.waiting_batches", static_cast<double>(c.waiting_batches), 0, 1e6},
      {"ingest.waiting_bytes", static_cast<double>(c.waiting_bytes), 0, 16 * kGiB},
      {"ingest.max_streams", static_cast<double>(c.max_streams), 1, 1e7},
      {"ingest.max_name_bytes", static_cast<double>(c.max_name_bytes), 16, 65536},
      {"ingest.max_series", static_cast<double>(c.max_series), 1, 1e8},
      {"ingest.max_runs", static_cast<double>(c.max_runs), 1, 1e7},
      {"ingest.hello_seconds", c.hello_seconds, 0.1, 3600},
      {"journal.sync_seconds", c.journal_sync_seconds, 0.01, 3600},
      {"journal.commit_ms", c.journal_commit_ms, 0, 1000},
      {"journal.commit_bytes", static_cast<double>(c.journal_commit_bytes), 1, kGiB},
      {"journal.segment_bytes", static_cast<double>(c.journal_segment_bytes), 4096, 64 * kGiB},
      {"store.bytes", static_cast<double>(c.store_bytes), 0, 1e6 * kGiB},
      {"store.days", c.store_days, 0, 36500},
      {"incidents.quiet_steps", static_cast<double>(c.quiet_steps), 1, 1e12},
      {"journal.keep_days", c.journal_keep_days, 0, 100000},
      {"journal.keep_bytes", static_cast<double>(c.journal_keep_bytes), 0, 1e18},
      {"checkpoint.bytes", static_cast<double>(c.checkpoint_bytes), 1, 1024 * kGiB},
      {"checkpoint.seconds", c.checkpoint_seconds, 0.01, 86400},
      {"capsules.rank_bytes", static_cast<double>(c.capsule_rank_bytes), 1024, 64.0 * (1 << 20)},
      {"capsules.bytes", static_cast<double>(c.capsule_bytes), 0, 1024 * kGiB},
      {"capsules.ranks", static_cast<double>(c.capsule_ranks), 1, 4096},
      {"capsules.per_run", static_cast<double>(c.capsule_per_run), 0, 1e6},
      {"capsules.dense_steps", static_cast<double>(c.capsule_dense_steps), 0, 4096},
      {"liveness.hang_seconds", c.hang_seconds, 0.1, 86400},
      {"rules.window_steps", static_cast<double>(c.window_steps), 1, 1e9},
  };
  for (const auto& r : ranges) {
    if (auto s = CheckRange(r.name, r.value, r.low, r.high); !s.ok()) return s;
  }
  if (c.journal_sync != "commit" && c.journal_sync != "interval" && c.journal_sync != "never") {
    return absl::InvalidArgumentError(absl::StrCat(
        "journal.sync must be commit, interval or never, found \"", c.journal_sync, "\""));
  }
  const char* takes[] = {"off", "note", "warning", "error"};
  if (std::find(std::begin(takes), std::end(takes), c.capsule_take) == std::end(takes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "capsules.take must be off, note, warning or error, found \"", c.capsule_take, "\""));
  }
  if (auto s = ValidateAlerts(c.alerts, c.insecure); !s.ok()) return s;
  const char* levels[] = {"trace", "debug", "info", "warning", "error", "off"};
  if (std::find(std::begin(levels), std::end(levels), c.log_level) == std::end(levels)) {
    return absl::InvalidArgumentError(
        absl::StrCat("log.level must be trace, debug, info, warning, error or off, found \"",
                     c.log_level, "\""));
  }
  return absl::OkStatus();
}

}  // namespace plumbline::server

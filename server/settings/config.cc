#include "server/settings/config.h"

#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/address.h"
#include "server/settings/client_certificate.h"
#include "server/settings/log_levels.h"

namespace plumbline::server {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

bool CheckPort(const std::string& key, const std::string& address, ConfigMistakes* mistakes) {
  if (IsAddress(address)) return true;
  mistakes->Add(key, absl::StrCat("expected HOST:PORT or unix:PATH, found \"", address, "\""));
  return false;
}

// Returns true if tokens stay on the host. Tokens must not cross a network unencrypted, even with
// --insecure, and gRPC treats only these addresses as local.
bool KeepsTokens(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  return host == "unix" || host == "127.0.0.1" || host == "[::1]" || host == "localhost" ||
         IsSocketPath(address);
}

void CheckAddress(const std::string& key, const std::string& address, const Config& c,
                  ConfigMistakes* mistakes) {
  if (!CheckPort(key, address, mistakes)) return;
  const bool unsure = mistakes->Has("tls") || mistakes->Has("listen.insecure") ||
                      (c.access.empty() && mistakes->Has("access"));
  if (unsure) return;  // the intended values are unknown
  const bool encrypted = !c.tls_cert.empty();
  if (!c.access.empty() && !encrypted) {
    if (KeepsTokens(address)) return;
    mistakes->Add(
        key, absl::StrCat("expected 127.0.0.1, [::1], localhost or unix:PATH with "
                          "[[access]] and without [tls], found \"",
                          address, "\": tokens are not sent over a network without encryption"));
    return;
  }
  if (IsLoopback(address) || c.insecure || (encrypted && !c.access.empty())) return;
  mistakes->Add(
      key, absl::StrCat(
               "expected a loopback address, found \"", address, "\": ",
               encrypted ? "any client that reaches it would have all rights: declare clients in "
                           "[[access]] (\"encrypted\" is not \"authenticated\")"
                         : "nothing would be encrypted or authenticated: add [tls] and [[access]] "
                           "to the configuration file, use 127.0.0.1 through a tunnel",
               ", or --insecure on a network you trust (docs/security.md)"));
}

void CheckTls(const Config& c, ConfigMistakes* mistakes) {
  if (mistakes->Has("tls")) return;
  if (c.tls_cert.empty() != c.tls_key.empty()) {
    const bool cert = c.tls_cert.empty();
    mistakes->Add(cert ? "tls.cert" : "tls.key",
                  absl::StrCat("expected a file, as ", cert ? "tls.key" : "tls.cert",
                               " names one, found none: set both, or neither"));
  }
  if (!c.tls_revoked.empty() && c.tls_client_ca.empty()) {
    mistakes->Add("tls.revoked",
                  "expected tls.client_ca too, found none: clients present no certificate");
  }
  if (!c.tls_client_ca.empty() && c.tls_cert.empty()) {
    mistakes->Add(
        "tls.client_ca",
        "expected tls.cert and tls.key too, found none: only TLS clients present certificates");
  }
}

// Reports a name of another kind than the glob's: no name would match it.
void CheckKind(const std::string& key, const std::string& san, ConfigMistakes* mistakes) {
  const SubjectName glob = ParseSubjectGlob(san);
  if (glob.kind != SubjectName::Kind::kDns) return;
  const bool uri = glob.name.find("://") != std::string::npos;
  if (!uri && glob.name.find('@') == std::string::npos) return;
  mistakes->Add(key, absl::StrCat("expected a DNS name, or \"",
                                  uri ? "uri:" : "email:", "\" before it, found \"", san, "\""));
}

void CheckEntry(const std::string& key, const AccessEntry& entry, const Config& c,
                ConfigMistakes* mistakes) {
  // otherwise a misspelt key could be reported as missing
  const bool read_whole = !mistakes->Has(key);
  if (read_whole && entry.name.empty()) mistakes->Add(key + ".name", "expected a name, found none");
  for (const std::string& scope : entry.scopes) {
    if (const std::string wrong = NoneOf({"read", "write", "admin"}, scope); !wrong.empty())
      mistakes->Add(key + ".scopes", wrong);
  }
  if (read_whole && entry.scopes.empty())
    mistakes->Add(key + ".scopes", "expected some of read, write and admin, found none");
  if (read_whole && entry.san.empty() && entry.token_file.empty())
    mistakes->Add(
        key, "expected san, token_file or both, found neither: the entry would allow every client");
  if (!entry.san.empty() && c.tls_client_ca.empty() && !mistakes->Has("tls"))
    mistakes->Add(
        key + ".san",
        "expected tls.client_ca too, found none: only clients with a certificate have a san");
  CheckKind(key + ".san", entry.san, mistakes);
  if (!(entry.share >= 0 && entry.share <= 1))
    mistakes->Add(key + ".share",
                  absl::StrCat("expected a share of 1, 0 for the default, found ", entry.share));
  if (entry.runs.empty())
    mistakes->Add(key + ".runs", "expected globs, [\"*\"] for every run, found none");
}

void CheckAccess(const Config& c, ConfigMistakes* mistakes) {
  std::set<std::string> names;
  for (size_t i = 0; i < c.access.size(); ++i) {
    const AccessEntry& entry = c.access[i];
    const std::string key = absl::StrCat("access[", i, "]");
    CheckEntry(key, entry, c, mistakes);
    if (!entry.name.empty() && !names.insert(entry.name).second)
      mistakes->Add(key + ".name", absl::StrCat("expected a unique name, found \"", entry.name,
                                                "\", which another entry uses"));
  }
}

void CheckRelay(const Config& c, ConfigMistakes* mistakes) {
  if (c.relay_upstream.empty()) return;
  const std::string none = "expected none together with relay.upstream: ";
  for (const auto& [key, given] :
       {std::pair("data.directory", !c.data_directory.empty()),
        std::pair("rules.run", !c.rules.empty()), std::pair("rules.set", !c.settings.empty())}) {
    if (!given) continue;
    mistakes->Add(key, none +
                           "a relay judges and stores nothing; set this on the upstream server "
                           "(agents store unacknowledged evidence in their spools)");
  }
  if (!c.alerts.routes.empty())
    mistakes->Add("alerts.route[0]",
                  none + "a relay has no incidents; set this on the upstream server");
  const std::string key = "relay.upstream";
  if (c.relay_upstream == c.grpc)
    mistakes->Add(key, "expected another server, found its own address " + c.relay_upstream);
  if (!CheckPort(key, c.relay_upstream, mistakes)) return;
  if (!c.relay_tls_ca.empty() || IsLoopback(c.relay_upstream) || c.insecure) return;
  if (mistakes->Has("relay.tls_ca") || mistakes->Has("listen.insecure")) return;
  mistakes->Add(key, absl::StrCat("expected a loopback address, found \"", c.relay_upstream,
                                  "\": the connection would not be encrypted: name the server's "
                                  "authority in relay.tls_ca, or --insecure on a network you "
                                  "trust"));
}

void CheckRedact(const Config& c, ConfigMistakes* mistakes) {
  if (mistakes->Has("redact")) return;
  if (c.redact_ids && c.redact_key_file.empty())
    mistakes->Add("redact.key_file",
                  "expected a file of mode 0600 with the key, as redact.ids is true, found none "
                  "(openssl rand -hex 32 makes one)");
  if (!c.redact_ids && !c.redact_key_file.empty())
    mistakes->Add("redact.ids", "expected true, as redact.key_file names a key, found false");
  if (c.redact_ids && !c.relay_upstream.empty())
    mistakes->Add(
        "redact.ids",
        "expected none together with relay.upstream: a relay forwards evidence unchanged; set this "
        "on the upstream server, or in the agents (PLUMBLINE_REDACT)");
}

void CheckRanges(const Config& c, ConfigMistakes* mistakes) {
  if (c.receive_bytes > 0 && c.receive_bytes < c.message_bytes)
    mistakes->Add(
        "limits.receive_bytes",
        absl::StrCat("expected ingest.message_bytes (", c.message_bytes, ") or more, found ",
                     c.receive_bytes, ": a message of that size cannot arrive"));
  const struct {
    const char* key;
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
      {"ingest.max_ranks", static_cast<double>(c.max_ranks), 1, 1e8},
      {"limits.open_bytes", static_cast<double>(c.open_bytes), 0, 1024 * kGiB},
      {"limits.name_bytes", static_cast<double>(c.name_bytes), 0, 1024 * kGiB},
      {"limits.receive_bytes", static_cast<double>(c.receive_bytes), 0, 1024 * kGiB},
      {"journal.sync_seconds", c.journal_sync_seconds, 0.01, 3600},
      {"journal.commit_ms", c.journal_commit_ms, 0, 1000},
      {"journal.commit_bytes", static_cast<double>(c.journal_commit_bytes), 1, kGiB},
      {"journal.segment_bytes", static_cast<double>(c.journal_segment_bytes), 4096, 64 * kGiB},
      {"store.bytes", static_cast<double>(c.store_bytes), 0, 1e6 * kGiB},
      {"store.days", c.store_days, 0, 36500},
      {"incidents.quiet_steps", static_cast<double>(c.quiet_steps), 1, 1e12},
      {"journal.keep_days", c.journal_keep_days, 0, 100000},
      {"journal.keep_sample_days", c.journal_keep_sample_days, 0, 100000},
      {"journal.keep_bytes", static_cast<double>(c.journal_keep_bytes), -1, 1e18},
      {"checkpoint.bytes", static_cast<double>(c.checkpoint_bytes), 1, 1024 * kGiB},
      {"checkpoint.seconds", c.checkpoint_seconds, 0.01, 86400},
      {"capsules.rank_bytes", static_cast<double>(c.capsule_rank_bytes), 1024, 64.0 * (1 << 20)},
      {"capsules.bytes", static_cast<double>(c.capsule_bytes), 0, 1024 * kGiB},
      {"capsules.ranks", static_cast<double>(c.capsule_ranks), 1, 4096},
      {"capsules.per_run", static_cast<double>(c.capsule_per_run), 0, 1e6},
      {"capsules.dense_steps", static_cast<double>(c.capsule_dense_steps), 0, 4096},
      {"liveness.hang_seconds", c.hang_seconds, 0.1, 86400},
      {"liveness.between_steps_seconds", c.between_steps_seconds, 0.1, 86400},
      {"rules.window_steps", static_cast<double>(c.window_steps), 1, 1e9},
  };
  constexpr int64_t kLeast = 1 << 20;  // a server without memory for steps could not judge
  for (const auto& [key, value] : {std::pair("limits.open_bytes", c.open_bytes),
                                   std::pair("limits.name_bytes", c.name_bytes)}) {
    if (value > 0 && value < kLeast) {
      mistakes->Add(key, absl::StrCat("expected 0 (derived from the memory) or ", kLeast,
                                      " and more, found ", value));
    }
  }
  for (const auto& r : ranges) {
    if (r.value >= r.low && r.value <= r.high) continue;
    mistakes->Add(r.key, absl::StrCat("expected ", r.low, " to ", r.high, ", found ", r.value));
  }
}

void CheckWords(const Config& c, ConfigMistakes* mistakes) {
  const struct {
    const char* key;
    const std::string& value;
    std::vector<std::string> words;
  } all[] = {
      {"journal.sync", c.journal_sync, {"commit", "interval", "never"}},
      {"capsules.take", c.capsule_take, {"off", "note", "warning", "error"}},
      {"log.level", c.log_level, LogLevels()},
  };
  for (const auto& one : all) {
    if (const std::string wrong = NoneOf(one.words, one.value); !wrong.empty())
      mistakes->Add(one.key, wrong);
  }
}

}  // namespace

bool IsLoopback(const std::string& address) { return IsLoopbackAddress(address); }

void ValidateConfig(const Config& c, ConfigMistakes* mistakes) {
  CheckTls(c, mistakes);
  CheckAccess(c, mistakes);
  CheckAddress("listen.grpc", c.grpc, c, mistakes);
  if (c.http != "off") CheckAddress("listen.http", c.http, c, mistakes);
  CheckRelay(c, mistakes);
  CheckRedact(c, mistakes);
  CheckRanges(c, mistakes);
  CheckWords(c, mistakes);
  ValidateAlerts(c.alerts, c.insecure, mistakes);
}

absl::Status ValidateConfig(const Config& config) {
  ConfigMistakes mistakes;
  ValidateConfig(config, &mistakes);
  return mistakes.ToStatus();
}

}  // namespace plumbline::server

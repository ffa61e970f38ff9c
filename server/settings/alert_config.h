// Who is told of incidents: [alerts] and [[alerts.route]] of the configuration file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "plumbline/v1/finding.pb.h"
#include "server/settings/config_mistakes.h"

namespace plumbline::server {

// One receiver, and which incidents it hears of. Every route that matches is told.
struct AlertRoute {
  enum class Sink { kNone, kAlertmanager, kWebhook, kCommand };

  std::string name;  // of letters, digits, '-', '_'; unique: what was told is remembered by it
  v1::Level level = v1::LEVEL_WARNING;  // at least
  std::vector<std::string> rules;       // globs; empty: all
  std::vector<std::string> runs;        // globs; empty: all but the trial of plumb doctor
  // Exactly one of these three.
  std::string alertmanager;          // URL of its root, "http://127.0.0.1:9093"
  std::string webhook;               // URL
  std::vector<std::string> command;  // argv, no shell
  std::string secret_file;           // of a webhook's signature
  std::string token_file;            // "Authorization: Bearer ..."; empty: none
  std::string ca_file;               // of an https URL; empty: the system's
  bool resolved = true;              // an incident's end is told too; an Alertmanager always is
  double timeout_seconds = 10;       // of one try
  double retry_hours = 24;           // a notification that cannot be delivered is given up after
  int64_t most_a_minute = 30;  // what is more is told in one summary; 0: no limit. No Alertmanager
  double resend_seconds = 60;  // an Alertmanager is told again what is open
  bool raw_ids = false;        // token and sequence ids are named

  Sink sink() const;
  bool Matches(const v1::Finding& finding) const;
  bool operator==(const AlertRoute&) const = default;
};

struct AlertConfig {
  std::string page;  // where people reach this server's page; empty: no links
  // An incident that opens gathers ranks and causes for so long, and until its step is closed, but
  // no longer than the second.
  double gather_seconds = 0.3;
  double gather_most_seconds = 1.5;
  std::vector<AlertRoute> routes;

  bool operator==(const AlertConfig&) const = default;
};

// "http://host:8080/path" taken apart.
struct HttpUrl {
  std::string origin;  // "http://host:8080"
  std::string path;    // begins with '/'
  bool encrypted = false;
  bool loopback = false;
};
// InvalidArgument says what is expected; a password in it is refused.
absl::Status ParseHttpUrl(const std::string& url, HttpUrl* out);

// Names, sinks, addresses, ranges; that files can be read. `insecure`: addresses off loopback may
// be reached without encryption.
void ValidateAlerts(const AlertConfig& config, bool insecure, ConfigMistakes* mistakes);

// The secret of a webhook, or a token: the first line of a file that others cannot read. Errors as
// ReadPrivateFile; InvalidArgument: it is too short.
absl::Status ReadSecret(const std::string& path, size_t least_bytes, std::string* out);

const char* SinkWord(AlertRoute::Sink sink);  // "alertmanager", "webhook", "command"

}  // namespace plumbline::server

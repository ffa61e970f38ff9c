// The receivers of alerts: [alerts] and [[alerts.route]] of the configuration file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "plumbline/v1/finding.pb.h"
#include "server/settings/config_mistakes.h"

namespace plumbline::server {

// One receiver, and the incidents that it gets. Every route that matches is used.
struct AlertRoute {
  enum class Sink { kNone, kAlertmanager, kWebhook, kCommand };

  std::string name;  // of letters, digits, '-', '_'; unique, because deliveries are stored by it
  v1::Level level = v1::LEVEL_WARNING;  // minimum
  std::vector<std::string> rules;       // globs; empty: all
  std::vector<std::string> runs;        // globs; empty: all but plumb doctor's trial run
  // Exactly one of these three.
  std::string alertmanager;          // URL of its root, "http://127.0.0.1:9093"
  std::string webhook;               // URL
  std::vector<std::string> command;  // argv, no shell
  std::string secret_file;           // of a webhook's signature
  std::string token_file;            // "Authorization: Bearer ..."; empty: none
  std::string ca_file;               // for an https URL; empty: the system's
  bool resolved = true;         // the end of an incident is sent too; always for an Alertmanager
  double timeout_seconds = 10;  // of one try
  double retry_hours = 24;  // if a notification cannot be delivered, it is given up after this time
  // further notifications are sent in one summary; 0: no limit. Not for an Alertmanager
  int64_t most_a_minute = 30;
  double resend_seconds = 60;  // open alerts are sent to an Alertmanager again after this time
  bool raw_ids = false;        // token and sequence ids are included

  Sink sink() const;
  bool Matches(const v1::Finding& finding) const;
  bool operator==(const AlertRoute&) const = default;
};

struct AlertConfig {
  std::string page;  // URL of this server's page; empty: no links
  // When an incident opens, it gathers ranks and causes for at least the first duration, until its
  // step is closed, and at most for the second duration.
  double gather_seconds = 0.3;
  double gather_most_seconds = 1.5;
  std::vector<AlertRoute> routes;

  bool operator==(const AlertConfig&) const = default;
};

// The parts of "http://host:8080/path".
struct HttpUrl {
  std::string origin;  // "http://host:8080"
  std::string path;    // begins with '/'
  bool encrypted = false;
  bool loopback = false;
};
// Parses a URL. InvalidArgument states what is expected; a URL with a password is refused.
absl::Status ParseHttpUrl(const std::string& url, HttpUrl* out);

// Checks names, sinks, addresses and ranges, and that files can be read. `insecure`: addresses off
// loopback may be used without encryption.
void ValidateAlerts(const AlertConfig& config, bool insecure, ConfigMistakes* mistakes);

// Reads the secret of a webhook, or a token: the first line of a file that others cannot read.
// Errors as ReadPrivateFile; InvalidArgument if it is too short.
absl::Status ReadSecret(const std::string& path, size_t least_bytes, std::string* out);

const char* SinkWord(AlertRoute::Sink sink);  // returns "alertmanager", "webhook", "command"

}  // namespace plumbline::server

#include "server/alerts/alert_config.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/private_file.h"
#include "rules/catalogue.h"

namespace plumbline::server {
namespace {

constexpr size_t kMostRoutes = 32;  // each has a thread
constexpr size_t kLeastSecretBytes = 16;
constexpr char kTrialRun[] = "plumb-doctor";  // plumb doctor's finding is planted, and no news

bool MatchesOne(const std::vector<std::string>& globs, const std::string& text) {
  return globs.empty() || std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) {
           return rules::GlobMatch(glob, text);
         });
}

bool IsName(const std::string& name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
  });
}

absl::Status Wrong(const AlertRoute& route, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(
      route.where.empty() ? "alerts.route" : route.where, ": ",
      route.name.empty() ? "this route" : absl::StrCat("route \"", route.name, "\""), ": ", what));
}

absl::Status CheckUrl(const AlertRoute& route, const std::string& url, bool insecure) {
  HttpUrl parsed;
  if (auto s = ParseHttpUrl(url, &parsed); !s.ok()) return Wrong(route, std::string(s.message()));
  if (parsed.encrypted || parsed.loopback || insecure) return absl::OkStatus();
  return Wrong(route, absl::StrCat(url,
                                   " is not on loopback and nothing would be encrypted: expected "
                                   "https://, or listen.insecure on a network you trust"));
}

absl::Status CheckCommand(const AlertRoute& route) {
  const std::string& program = route.command[0];
  if (program.empty() || program[0] != '/')
    return Wrong(
        route, "command must begin with the absolute path of a program, found \"" + program + "\"");
  if (access(program.c_str(), X_OK) != 0)
    return Wrong(route, "command " + program + " cannot be executed by plumbd");
  return absl::OkStatus();
}

absl::Status CheckFiles(const AlertRoute& route) {
  const bool webhook = route.sink() == AlertRoute::Sink::kWebhook;
  if (webhook && route.secret_file.empty())
    return Wrong(route, "a webhook is signed: expected secret_file = \"FILE\"");
  if (!webhook && !route.secret_file.empty())
    return Wrong(route, "secret_file belongs to a webhook");
  if (route.sink() == AlertRoute::Sink::kCommand &&
      !(route.token_file.empty() && route.ca_file.empty())) {
    return Wrong(route, "token_file and ca_file belong to a URL");
  }
  std::string unused;
  if (!route.secret_file.empty()) {
    if (auto s = ReadSecret(route.secret_file, kLeastSecretBytes, &unused); !s.ok())
      return Wrong(route, "secret_file " + std::string(s.message()));
  }
  if (!route.token_file.empty()) {
    if (auto s = ReadSecret(route.token_file, 1, &unused); !s.ok())
      return Wrong(route, "token_file " + std::string(s.message()));
  }
  if (!route.ca_file.empty() && access(route.ca_file.c_str(), R_OK) != 0)
    return Wrong(route, "ca_file " + route.ca_file + " cannot be read");
  return absl::OkStatus();
}

absl::Status CheckNumbers(const AlertRoute& route) {
  const struct {
    const char* name;
    double value, low, high;
  } ranges[] = {
      {"timeout_seconds", route.timeout_seconds, 0.1, 300},
      {"retry_hours", route.retry_hours, 0, 24 * 365},
      {"most_a_minute", static_cast<double>(route.most_a_minute), 0, 1e6},
      {"resend_seconds", route.resend_seconds, 1, 3600},
  };
  for (const auto& r : ranges) {
    if (r.value >= r.low && r.value <= r.high) continue;
    return Wrong(route, absl::StrCat(r.name, " must be between ", r.low, " and ", r.high,
                                     ", found ", r.value));
  }
  return absl::OkStatus();
}

absl::Status CheckRoute(const AlertRoute& route, bool insecure) {
  if (!IsName(route.name))
    return Wrong(route,
                 absl::StrCat("expected name = \"...\" of letters, digits, - and _, found \"",
                              route.name, "\""));
  const int sinks = (route.alertmanager.empty() ? 0 : 1) + (route.webhook.empty() ? 0 : 1) +
                    (route.command.empty() ? 0 : 1);
  if (sinks != 1)
    return Wrong(route,
                 absl::StrCat("expected one of alertmanager, webhook and command, found ", sinks));
  for (const std::string& url : {route.alertmanager, route.webhook}) {
    if (url.empty()) continue;
    if (auto s = CheckUrl(route, url, insecure); !s.ok()) return s;
  }
  if (!route.command.empty()) {
    if (auto s = CheckCommand(route); !s.ok()) return s;
  }
  if (auto s = CheckFiles(route); !s.ok()) return s;
  return CheckNumbers(route);
}

}  // namespace

AlertRoute::Sink AlertRoute::sink() const {
  if (!alertmanager.empty()) return Sink::kAlertmanager;
  if (!webhook.empty()) return Sink::kWebhook;
  return command.empty() ? Sink::kNone : Sink::kCommand;
}

bool AlertRoute::Matches(const v1::Finding& finding) const {
  if (runs.empty() && finding.site().run() == kTrialRun) return false;
  return !finding.suppressed() && finding.level() >= level && MatchesOne(rules, finding.rule()) &&
         MatchesOne(runs, finding.site().run());
}

absl::Status ParseHttpUrl(const std::string& url, HttpUrl* out) {
  const auto expected = [&](const char* found) {
    return absl::InvalidArgumentError(absl::StrCat(
        "expected a URL like https://HOST:PORT/PATH, found ", found, " in \"", url, "\""));
  };
  const size_t scheme = url.find("://");
  const std::string name = url.substr(0, scheme == std::string::npos ? 0 : scheme);
  if (name != "http" && name != "https") return expected("neither http:// nor https://");
  const size_t host = scheme + 3;
  const size_t slash = std::min(url.find_first_of("/?", host), url.size());
  std::string authority = url.substr(host, slash - host);
  if (authority.find('@') != std::string::npos)
    return absl::InvalidArgumentError(
        "expected no user or password in a URL (configurations are read by many): put a token "
        "into a file and name it as token_file");
  for (const char c : url) {
    if (static_cast<unsigned char>(c) <= ' ' || c == 0x7F || c == '#')
      return expected("a space, a control character or a #");
  }
  const size_t bracket = authority.find(']');
  const size_t colon = authority.find(':', bracket == std::string::npos ? 0 : bracket);
  const std::string plain = authority.substr(0, colon);
  if (plain.empty()) return expected("no host");
  if (colon != std::string::npos) {
    const std::string port = authority.substr(colon + 1);
    if (port.empty() || port.size() > 5 ||
        port.find_first_not_of("0123456789") != std::string::npos || std::stoi(port) > 65535 ||
        std::stoi(port) == 0) {
      return expected("no port between 1 and 65535");
    }
  }
  out->origin = url.substr(0, slash);
  out->path = slash < url.size() ? url.substr(slash) : "/";
  if (out->path[0] != '/') out->path = "/" + out->path;
  out->encrypted = name == "https";
  out->loopback =
      plain == "localhost" || plain == "[::1]" ||
      (plain.rfind("127.", 0) == 0 && plain.find_first_not_of("0123456789.") == std::string::npos);
  return absl::OkStatus();
}

absl::Status ValidateAlerts(const AlertConfig& config, bool insecure) {
  for (const auto& [name, value] : {std::pair("gather_seconds", config.gather_seconds),
                                    std::pair("gather_most_seconds", config.gather_most_seconds)}) {
    if (value >= 0 && value <= 60) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("alerts.", name, " must be between 0 and 60, found ", value));
  }
  if (!config.page.empty()) {
    HttpUrl unused;
    if (auto s = ParseHttpUrl(config.page, &unused); !s.ok())
      return absl::InvalidArgumentError("alerts.page: " + std::string(s.message()));
  }
  if (config.routes.size() > kMostRoutes)
    return absl::InvalidArgumentError(absl::StrCat(
        "expected at most ", kMostRoutes, " [[alerts.route]], found ", config.routes.size()));
  std::set<std::string> names;
  for (const AlertRoute& route : config.routes) {
    if (auto s = CheckRoute(route, insecure); !s.ok()) return s;
    if (!names.insert(route.name).second)
      return Wrong(route, "this name is taken by another route: expected one of its own");
  }
  return absl::OkStatus();
}

absl::Status ReadSecret(const std::string& path, size_t least_bytes, std::string* out) {
  auto text = ReadPrivateFile(path);
  if (!text.ok()) return text.status();
  std::string line = text->substr(0, text->find('\n'));
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
  if (line.size() < least_bytes)
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected at least ", least_bytes,
                     " bytes in its first line (openssl rand -hex 32), found ", line.size()));
  *out = std::move(line);
  return absl::OkStatus();
}

const char* SinkWord(AlertRoute::Sink sink) {
  switch (sink) {
    case AlertRoute::Sink::kAlertmanager:
      return "alertmanager";
    case AlertRoute::Sink::kWebhook:
      return "webhook";
    case AlertRoute::Sink::kCommand:
      return "command";
    case AlertRoute::Sink::kNone:
      break;
  }
  return "none";
}

}  // namespace plumbline::server

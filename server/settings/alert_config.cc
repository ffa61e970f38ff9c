#include "server/settings/alert_config.h"

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
constexpr char kTrialRun[] = "plumb-doctor";  // plumb doctor's finding is artificial and not sent

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

// Checks one route, whose table is `key`.
class RouteCheck {
 public:
  RouteCheck(const AlertRoute& route, const std::string& key, bool insecure,
             ConfigMistakes* mistakes)
      : route_(route), key_(key), insecure_(insecure), mistakes_(mistakes) {}

  void Run() {
    // otherwise a misspelt key could be reported as missing
    const bool read_whole = !mistakes_->Has(key_);
    if (!IsName(route_.name) && (read_whole || !route_.name.empty())) {
      Wrong("name", absl::StrCat("expected letters, digits, - and _, found \"", route_.name, "\""));
    }
    const int sinks = (route_.alertmanager.empty() ? 0 : 1) + (route_.webhook.empty() ? 0 : 1) +
                      (route_.command.empty() ? 0 : 1);
    if (sinks > 1 || (sinks == 0 && read_whole)) {
      mistakes_->Add(
          key_, absl::StrCat("expected one of alertmanager, webhook and command, found ", sinks));
    }
    CheckUrl("alertmanager", route_.alertmanager);
    CheckUrl("webhook", route_.webhook);
    if (!route_.command.empty()) CheckCommand();
    if (sinks == 1 && read_whole) CheckWhatBelongs();
    CheckFiles();
    CheckNumbers();
  }

 private:
  void Wrong(const std::string& name, const std::string& what) {
    mistakes_->Add(absl::StrCat(key_, ".", name), what);
  }

  void CheckUrl(const std::string& name, const std::string& url) {
    if (url.empty()) return;
    HttpUrl parsed;
    if (auto s = ParseHttpUrl(url, &parsed); !s.ok()) return Wrong(name, std::string(s.message()));
    if (parsed.encrypted || parsed.loopback || insecure_) return;
    Wrong(name,
          absl::StrCat("expected https://, or listen.insecure on a network you trust, found ", url,
                       ", which is not on loopback: the connection would not be encrypted"));
  }

  void CheckCommand() {
    const std::string& program = route_.command[0];
    if (program.empty() || program[0] != '/') {
      return Wrong("command",
                   "expected the absolute path of a program first, found \"" + program + "\"");
    }
    if (access(program.c_str(), X_OK) != 0) {
      Wrong("command",
            "expected a program first that plumbd can execute, found \"" + program + "\"");
    }
  }

  void CheckWhatBelongs() {
    const bool webhook = route_.sink() == AlertRoute::Sink::kWebhook;
    if (webhook && route_.secret_file.empty())
      Wrong("secret_file", "expected secret_file = \"FILE\", found none: webhooks are signed");
    if (!webhook && !route_.secret_file.empty())
      Wrong("secret_file", "expected none without a webhook (it signs the webhook)");
    if (route_.sink() != AlertRoute::Sink::kCommand) return;
    if (!route_.token_file.empty()) Wrong("token_file", "expected none without a URL");
    if (!route_.ca_file.empty()) Wrong("ca_file", "expected none without a URL");
  }

  void CheckFiles() {
    std::string unused;
    if (!route_.secret_file.empty()) {
      if (auto s = ReadSecret(route_.secret_file, kLeastSecretBytes, &unused); !s.ok())
        Wrong("secret_file", std::string(s.message()));
    }
    if (!route_.token_file.empty()) {
      if (auto s = ReadSecret(route_.token_file, 1, &unused); !s.ok())
        Wrong("token_file", std::string(s.message()));
    }
    if (!route_.ca_file.empty() && access(route_.ca_file.c_str(), R_OK) != 0)
      Wrong("ca_file", "expected a file that plumbd can read, found " + route_.ca_file);
  }

  void CheckNumbers() {
    const struct {
      const char* name;
      double value, low, high;
    } ranges[] = {
        {"timeout_seconds", route_.timeout_seconds, 0.1, 300},
        {"retry_hours", route_.retry_hours, 0, 24 * 365},
        {"most_a_minute", static_cast<double>(route_.most_a_minute), 0, 1e6},
        {"resend_seconds", route_.resend_seconds, 1, 3600},
    };
    for (const auto& r : ranges) {
      if (r.value >= r.low && r.value <= r.high) continue;
      Wrong(r.name, absl::StrCat("expected ", r.low, " to ", r.high, ", found ", r.value));
    }
  }

  const AlertRoute& route_;
  const std::string& key_;
  const bool insecure_;
  ConfigMistakes* const mistakes_;
};

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
        "expected no user or password in a URL (many people can read configurations): put a token "
        "into a file, and name the file in token_file");
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

void ValidateAlerts(const AlertConfig& config, bool insecure, ConfigMistakes* mistakes) {
  for (const auto& [key, value] :
       {std::pair("alerts.gather_seconds", config.gather_seconds),
        std::pair("alerts.gather_most_seconds", config.gather_most_seconds)}) {
    if (value >= 0 && value <= 60) continue;
    mistakes->Add(key, absl::StrCat("expected 0 to 60, found ", value));
  }
  if (!config.page.empty()) {
    HttpUrl unused;
    if (auto s = ParseHttpUrl(config.page, &unused); !s.ok())
      mistakes->Add("alerts.page", std::string(s.message()));
  }
  if (config.routes.size() > kMostRoutes)
    mistakes->Add("alerts.route",
                  absl::StrCat("expected at most ", kMostRoutes, ", found ", config.routes.size()));
  std::set<std::string> names;
  for (size_t i = 0; i < config.routes.size(); ++i) {
    const AlertRoute& route = config.routes[i];
    const std::string key = absl::StrCat("alerts.route[", i, "]");
    RouteCheck(route, key, insecure, mistakes).Run();
    if (!route.name.empty() && !names.insert(route.name).second)
      mistakes->Add(key + ".name", "expected a unique name, found \"" + route.name +
                                       "\", which another route uses");
  }
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

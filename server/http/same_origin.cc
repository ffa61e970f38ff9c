#include "server/http/same_origin.h"

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace plumbline::server {
namespace {

// Returns the host and port of "https://HOST:PORT".
std::string_view HostOfOrigin(std::string_view origin) {
  const size_t at = origin.find("://");
  return at == std::string_view::npos ? std::string_view() : origin.substr(at + 3);
}

bool SameHost(std::string_view a, std::string_view b) {
  return absl::EqualsIgnoreCase({a.data(), a.size()}, {b.data(), b.size()});
}

}  // namespace

std::string HostName(std::string_view host) {
  if (!host.empty() && host[0] == '[') {
    const size_t close = host.find(']');
    const bool whole =
        close != std::string_view::npos && (close + 1 == host.size() || host[close + 1] == ':');
    return whole ? std::string(host.substr(1, close - 1)) : "";
  }
  std::string name(host.substr(0, host.find(':')));
  absl::AsciiStrToLower(&name);
  if (!name.empty() && name.back() == '.') name.pop_back();
  return name;
}

absl::Status CheckNotForeign(const WebRequest& request) {
  const bool other_site = !request.fetch_site.empty() && request.fetch_site != "same-origin";
  const bool other_origin =
      !request.origin.empty() && !SameHost(HostOfOrigin(request.origin), request.host);
  if (!other_site && !other_origin) return absl::OkStatus();
  return absl::PermissionDeniedError("this request was sent by a page of another site: refused");
}

absl::Status CheckSameOrigin(const WebRequest& request) {
  if (auto s = CheckNotForeign(request); !s.ok()) return s;
  const bool of_our_page = !request.origin.empty() || !request.fetch_site.empty();
  if (of_our_page || !request.caller.authorization.empty()) return absl::OkStatus();
  return absl::PermissionDeniedError(
      "a change must come from this server's page, or with a token in the Authorization header");
}

}  // namespace plumbline::server

#include "server/web/door.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <string>

namespace plumbline::server {
namespace {

std::string_view WithoutPort(std::string_view host) {
  if (!host.empty() && host[0] == '[') return host.substr(1, host.find(']') - 1);
  return host.substr(0, host.find(':'));
}

bool IsAddress(const std::string& host) {
  unsigned char bytes[sizeof(in6_addr)];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

// "https://HOST:PORT"
std::string_view HostOfOrigin(std::string_view origin) {
  const size_t at = origin.find("://");
  return at == std::string_view::npos ? std::string_view() : origin.substr(at + 3);
}

// As the machine itself is called; "": not known.
std::string OwnName() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

}  // namespace

absl::Status CheckHost(std::string_view host) {
  const std::string name(WithoutPort(host));
  if (name == "localhost" || IsAddress(name)) return absl::OkStatus();
  if (!name.empty() && name == OwnName()) return absl::OkStatus();
  return absl::PermissionDeniedError(
      "this plumbd asks nobody for a token, so it answers only where it is called by its address, "
      "its host's own name or as localhost: open http://127.0.0.1:PORT/, or give it [[access]] "
      "entries");
}

absl::Status CheckScrapeHost(std::string_view host) {
  const bool address = !host.empty() && host[0] == '[';
  const bool own = !address && WithoutPort(host).find('.') == std::string_view::npos;
  return own ? absl::OkStatus() : CheckHost(host);
}

absl::Status CheckSameOrigin(const WebRequest& request) {
  const auto refused = [] {
    return absl::PermissionDeniedError("this was sent by another site's page: refused");
  };
  if (!request.fetch_site.empty() && request.fetch_site != "same-origin") return refused();
  if (!request.origin.empty()) {
    return HostOfOrigin(request.origin) == request.host ? absl::OkStatus() : refused();
  }
  if (!request.fetch_site.empty() || !request.caller.authorization.empty()) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      "a change is sent by this server's page, or with a token in the Authorization header");
}

}  // namespace plumbline::server

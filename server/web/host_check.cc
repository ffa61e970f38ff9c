#include "server/web/host_check.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <string>

#include "server/http/same_origin.h"

namespace plumbline::server {
namespace {

bool IsAddress(const std::string& host) {
  unsigned char bytes[sizeof(in6_addr)];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

// Returns the host's name; "" if unknown.
std::string OwnName() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? HostName(name) : "";
}

}  // namespace

absl::Status CheckHost(std::string_view host) {
  const std::string name = HostName(host);
  if (name == "localhost" || IsAddress(name)) return absl::OkStatus();
  if (!name.empty() && name == OwnName()) return absl::OkStatus();
  return absl::PermissionDeniedError(
      "this plumbd requires no token, so it answers only under its address, its host name or "
      "localhost: open http://127.0.0.1:PORT/, or configure [[access]] entries");
}

absl::Status CheckScrapeHost(std::string_view host) {
  // A final dot counts as a dot, because "ai." is a site of the web.
  const bool own = host.find_first_of(".[") == std::string_view::npos;
  return own ? absl::OkStatus() : CheckHost(host);
}

}  // namespace plumbline::server

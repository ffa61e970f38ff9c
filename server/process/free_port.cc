#include "server/process/free_port.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/address.h"

namespace plumbline::server {
namespace {

// Returns 0, or the error why the address cannot be used. Binds as gRPC does, so that lingering
// connections do not matter.
int WhyNot(const addrinfo& at) {
  const int fd = socket(at.ai_family, at.ai_socktype | SOCK_CLOEXEC, at.ai_protocol);
  if (fd < 0) return 0;  // the host lacks this address family, so the port cannot be in use there
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const int error = bind(fd, at.ai_addr, at.ai_addrlen) == 0 ? 0 : errno;
  close(fd);
  return error;
}

std::string Why(int error, const std::string& port, const std::string& option) {
  if (error == EADDRINUSE)
    return absl::StrCat("port ", port, " is in use; is another plumbd running? (", option,
                        " HOST:PORT selects another one)");
  if (error == EADDRNOTAVAIL) return absl::StrCat("no address of this host (", option, ")");
  return absl::StrCat(std::strerror(error), " (", option, ")");
}

}  // namespace

absl::Status CheckPortIsFree(const std::string& address, const std::string& option) {
  if (IsSocketPath(address) || !IsAddress(address)) return absl::OkStatus();
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  const std::string port = address.substr(colon + 1);
  addrinfo wish{};
  wish.ai_family = AF_UNSPEC;
  wish.ai_socktype = SOCK_STREAM;
  wish.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  // If the name cannot be resolved, the code that listens reports it.
  if (getaddrinfo(host.c_str(), port.c_str(), &wish, &found) != 0) return absl::OkStatus();
  int error = 0;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const int why = WhyNot(*at);
    if (why == EADDRINUSE || why == EACCES || why == EADDRNOTAVAIL) error = why;
    if (why == EADDRINUSE) break;
  }
  freeaddrinfo(found);
  if (error == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cannot listen on ", address, ": ", Why(error, port, option)));
}

}  // namespace plumbline::server

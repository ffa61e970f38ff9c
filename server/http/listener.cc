#include "server/http/listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace plumbline::server {
namespace {

constexpr int kWaiting = 1024;  // connections that were not accepted yet

int TryListen(const addrinfo& at) {
  const int fd =
      socket(at.ai_family, at.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at.ai_protocol);
  if (fd < 0) return -1;
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(fd, at.ai_addr, at.ai_addrlen) == 0 && listen(fd, kWaiting) == 0) return fd;
  close(fd);
  return -1;
}

int PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

}  // namespace

absl::StatusOr<Listener> Listener::Open(const std::string& address) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  int port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port)) {
    return absl::InvalidArgumentError(absl::StrCat("--http must be HOST:PORT, found ", address));
  }
  addrinfo wish{};
  wish.ai_family = AF_UNSPEC;
  wish.ai_socktype = SOCK_STREAM;
  wish.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  int fd = -1;
  if (getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &wish, &found) == 0) {
    for (const addrinfo* at = found; at != nullptr && fd < 0; at = at->ai_next) fd = TryListen(*at);
    freeaddrinfo(found);
  }
  if (fd < 0) {
    return absl::UnavailableError(absl::StrCat(
        "cannot listen on ", address, ": is another plumbd running? (--http HOST:PORT, or off)"));
  }
  return Listener(fd, absl::StrCat(address.substr(0, colon), ":", PortOf(fd)));
}

Listener::Listener(Listener&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)), address_(std::move(other.address_)) {}

Listener::~Listener() {
  if (socket_ >= 0) close(socket_);
}

int Listener::Accept() const {
  const int fd = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return -1;
  const int yes = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  return fd;
}

}  // namespace plumbline::server

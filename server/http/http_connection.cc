#include "server/http/http_connection.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

namespace plumbline::server {
namespace {

// How long a stop may go unnoticed.
constexpr std::chrono::milliseconds kLook{100};

int IntOf(size_t size) {
  return static_cast<int>(std::min<size_t>(size, std::numeric_limits<int>::max()));
}

void AddressOf(const sockaddr_storage& address, std::string& ip, int& port) {
  char text[INET6_ADDRSTRLEN] = "";
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address);
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address);
  if (address.ss_family == AF_INET) {
    inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
    port = ntohs(v4->sin_port);
  } else if (address.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
    port = ntohs(v6->sin6_port);
  }
  ip = text;
}

}  // namespace

HttpConnection::HttpConnection(socket_t socket, const std::atomic<socket_t>* running)
    : socket_(socket), running_(running) {
  fcntl(socket_, F_SETFL, fcntl(socket_, F_GETFL) | O_NONBLOCK);
}

HttpConnection::~HttpConnection() {
  if (tls_ != nullptr) SSL_shutdown(tls_.get());
  shutdown(socket_, SHUT_RDWR);
  close(socket_);
}

bool HttpConnection::Await(short events) const {
  for (;;) {
    const auto left = deadline_ - Clock::now();
    if (left <= Clock::duration::zero() || *running_ == INVALID_SOCKET) return false;
    const auto wait = std::min<Clock::duration>(left, kLook);
    pollfd ready{socket_, events, 0};
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(wait).count();
    const int n = poll(&ready, 1, static_cast<int>(ms));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return false;
  }
}

// What a call of the TLS library waits for. False: it failed.
bool HttpConnection::AwaitTls(int result) const {
  const int error = SSL_get_error(tls_.get(), result);
  if (error == SSL_ERROR_WANT_READ) return Await(POLLIN);
  return error == SSL_ERROR_WANT_WRITE && Await(POLLOUT);
}

bool HttpConnection::BeginTls(SSL_CTX* context) {
  tls_.reset(SSL_new(context));
  if (tls_ == nullptr || SSL_set_fd(tls_.get(), socket_) != 1) return false;
  for (;;) {
    ERR_clear_error();
    const int result = SSL_accept(tls_.get());
    if (result == 1) return true;
    if (!AwaitTls(result)) return false;
  }
}

bool HttpConnection::is_readable() const {
  if (begin_ < end_ || (tls_ != nullptr && SSL_pending(tls_.get()) > 0)) return true;
  return Await(POLLIN);
}

bool HttpConnection::is_writable() const { return Await(POLLOUT); }

ssize_t HttpConnection::ReadSome(char* out, size_t size) {
  for (;;) {
    if (Clock::now() >= deadline_) return -1;
    if (tls_ != nullptr) {
      ERR_clear_error();
      const int n = SSL_read(tls_.get(), out, IntOf(size));
      if (n > 0) return n;
      if (SSL_get_error(tls_.get(), n) == SSL_ERROR_ZERO_RETURN) return 0;
      if (!AwaitTls(n)) return -1;
      continue;
    }
    const ssize_t n = recv(socket_, out, size, 0);
    if (n >= 0) return n;
    if (errno != EINTR && errno != EAGAIN) return -1;
    if (!Await(POLLIN)) return -1;
  }
}

ssize_t HttpConnection::read(char* out, size_t size) {
  if (begin_ == end_) {
    if (size >= buffer_.size()) return ReadSome(out, size);
    const ssize_t n = ReadSome(buffer_.data(), buffer_.size());
    if (n <= 0) return n;
    begin_ = 0;
    end_ = static_cast<size_t>(n);
  }
  const size_t n = std::min(size, end_ - begin_);
  std::memcpy(out, buffer_.data() + begin_, n);
  begin_ += n;
  return static_cast<ssize_t>(n);
}

ssize_t HttpConnection::write(const char* data, size_t size) {
  for (;;) {
    if (Clock::now() >= deadline_) return -1;
    if (tls_ != nullptr) {
      ERR_clear_error();
      const int n = SSL_write(tls_.get(), data, IntOf(size));
      if (n > 0) return n;
      if (!AwaitTls(n)) return -1;
      continue;
    }
    const ssize_t n = send(socket_, data, size, MSG_NOSIGNAL);
    if (n >= 0) return n;
    if (errno != EINTR && errno != EAGAIN) return -1;
    if (!Await(POLLOUT)) return -1;
  }
}

void HttpConnection::get_remote_ip_and_port(std::string& ip, int& port) const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getpeername(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0) {
    AddressOf(address, ip, port);
  }
}

void HttpConnection::get_local_ip_and_port(std::string& ip, int& port) const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0) {
    AddressOf(address, ip, port);
  }
}

}  // namespace plumbline::server

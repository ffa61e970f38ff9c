#include "server/http/http_connection.h"

#include <openssl/err.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace plumbline::server {
namespace {

constexpr size_t kAtOnce = 16 << 10;

HttpConnection::Outcome OfError(HttpConnection::Outcome wanted) {
  return errno == EAGAIN || errno == EINTR ? wanted : HttpConnection::Outcome::kOver;
}

}  // namespace

HttpConnection::HttpConnection(int socket, SSL_CTX* context) : socket_(socket) {
  if (context == nullptr) return;
  tls_.reset(SSL_new(context));
  if (tls_ != nullptr) SSL_set_fd(tls_.get(), socket_);
}

HttpConnection::~HttpConnection() {
  ERR_clear_error();
  close(socket_);
}

HttpConnection::Outcome HttpConnection::OfTls(int result) const {
  const int error = SSL_get_error(tls_.get(), result);
  ERR_clear_error();
  if (error == SSL_ERROR_WANT_READ) return Outcome::kRead;
  return error == SSL_ERROR_WANT_WRITE ? Outcome::kWrite : Outcome::kOver;
}

HttpConnection::Outcome HttpConnection::Handshake() {
  if (tls_ == nullptr) return Outcome::kDone;
  const int result = SSL_accept(tls_.get());
  return result == 1 ? Outcome::kDone : OfTls(result);
}

HttpConnection::Outcome HttpConnection::Read(std::string* out) {
  std::array<char, kAtOnce> buffer;
  if (tls_ != nullptr) {
    const int n = SSL_read(tls_.get(), buffer.data(), static_cast<int>(buffer.size()));
    if (n <= 0) return OfTls(n);
    out->append(buffer.data(), static_cast<size_t>(n));
    return Outcome::kDone;
  }
  const ssize_t n = recv(socket_, buffer.data(), buffer.size(), 0);
  if (n == 0) return Outcome::kOver;
  if (n < 0) return OfError(Outcome::kRead);
  out->append(buffer.data(), static_cast<size_t>(n));
  return Outcome::kDone;
}

HttpConnection::Outcome HttpConnection::Write(std::string_view bytes, size_t* taken) {
  *taken = 0;
  if (tls_ != nullptr) {
    const auto size = static_cast<int>(std::min(bytes.size(), kAtOnce));
    const int n = SSL_write(tls_.get(), bytes.data(), size);
    if (n <= 0) return OfTls(n);
    *taken = static_cast<size_t>(n);
    return Outcome::kDone;
  }
  const ssize_t n = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (n < 0) return OfError(Outcome::kWrite);
  *taken = static_cast<size_t>(n);
  return Outcome::kDone;
}

void HttpConnection::DescribeEnd() {
  if (tls_ != nullptr) SSL_shutdown(tls_.get());
  ERR_clear_error();
  shutdown(socket_, SHUT_WR);
}

}  // namespace plumbline::server

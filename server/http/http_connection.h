// One accepted connection of the HTTP side, plain or TLS. Its calls never block.
#pragma once

#include <openssl/ssl.h>
#include <poll.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace plumbline::server {

// Used by one thread. Owns the socket.
class HttpConnection {
 public:
  // The result of a call; kRead and kWrite: nothing done, try again once the socket is ready for
  // that.
  enum class Outcome { kDone, kRead, kWrite, kOver };

  // `context` null: plain.
  HttpConnection(int socket, SSL_CTX* context);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  int socket() const { return socket_; }
  // Performs the TLS handshake; kDone: it is finished, or the connection is plain.
  Outcome Handshake();
  // Appends the received bytes, at most about 16 KiB.
  Outcome Read(std::string* out);
  // Writes bytes; `*taken` is the number written.
  Outcome Write(std::string_view bytes, size_t* taken);
  // Ends the sending side. Data that the peer still sends are not read.
  void DescribeEnd();

  static short EventsOf(Outcome outcome) { return outcome == Outcome::kWrite ? POLLOUT : POLLIN; }

 private:
  Outcome OfTls(int result) const;

  const int socket_;
  std::unique_ptr<SSL, decltype(&SSL_free)> tls_{nullptr, &SSL_free};
};

}  // namespace plumbline::server

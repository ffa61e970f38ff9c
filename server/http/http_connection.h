// One accepted connection of the HTTP side, plain or TLS. However little a peer sends or takes at
// once, it may hold a thread for a bounded time only.
#pragma once

#include <httplib.h>
#include <openssl/ssl.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>

namespace plumbline::server {

// Used by one thread. Owns the socket.
class HttpConnection : public httplib::Stream {
 public:
  using Clock = std::chrono::steady_clock;

  // `running`: the listening socket; INVALID_SOCKET once the server stops, which ends every wait.
  HttpConnection(socket_t socket, const std::atomic<socket_t>* running);
  ~HttpConnection() override;
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  // What follows fails from then on.
  void AllowUntil(Clock::time_point deadline) { deadline_ = deadline; }
  // False: the handshake failed, or took too long.
  bool BeginTls(SSL_CTX* context);

  // Wait, at most until the deadline.
  bool is_readable() const override;
  bool is_writable() const override;
  ssize_t read(char* out, size_t size) override;
  ssize_t write(const char* data, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }

 private:
  bool Await(short events) const;
  bool AwaitTls(int result) const;
  ssize_t ReadSome(char* out, size_t size);

  const socket_t socket_;
  const std::atomic<socket_t>* const running_;
  std::unique_ptr<SSL, decltype(&SSL_free)> tls_{nullptr, &SSL_free};
  Clock::time_point deadline_{};
  std::array<char, 4096> buffer_;  // the library reads byte by byte
  size_t begin_ = 0, end_ = 0;
};

}  // namespace plumbline::server

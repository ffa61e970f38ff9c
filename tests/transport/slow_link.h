// A TCP link that carries nothing for a while after it was opened, like a server that many clients
// dial at once.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace plumbline::transport::testing {

class SlowLink {
 public:
  // Links to 127.0.0.1:PORT; each connection's bytes wait for `delay` in both directions.
  SlowLink(const std::string& target, std::chrono::milliseconds delay)
      : port_(static_cast<uint16_t>(std::stoi(target.substr(target.rfind(':') + 1)))),
        delay_(delay),
        listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in here = Loopback(0);
    socklen_t size = sizeof(here);
    ok_ = bind(listener_, reinterpret_cast<sockaddr*>(&here), size) == 0 &&
          listen(listener_, 64) == 0 &&
          getsockname(listener_, reinterpret_cast<sockaddr*>(&here), &size) == 0;
    address_ = "127.0.0.1:" + std::to_string(ntohs(here.sin_port));
    accepting_ = std::thread([this] { Accept(); });
  }
  ~SlowLink() {
    stopping_ = true;
    accepting_.join();
    for (std::thread& t : carrying_) t.join();
    close(listener_);
  }

  bool ok() const { return ok_; }
  const std::string& address() const { return address_; }
  int accepted() const { return accepted_; }

 private:
  static sockaddr_in Loopback(uint16_t port) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = htons(port);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
  }

  void Accept() {
    while (!stopping_) {
      pollfd wait{listener_, POLLIN, 0};
      if (poll(&wait, 1, 20) != 1) continue;
      const int near = accept(listener_, nullptr, nullptr);
      if (near < 0) continue;
      ++accepted_;
      carrying_.emplace_back([this, near] { Carry(near); });
    }
  }

  void Carry(int near) {
    std::this_thread::sleep_for(delay_);
    const int far = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in there = Loopback(port_);
    bool open = connect(far, reinterpret_cast<sockaddr*>(&there), sizeof(there)) == 0;
    while (open && !stopping_) {
      pollfd ends[2] = {{near, POLLIN, 0}, {far, POLLIN, 0}};
      if (poll(ends, 2, 20) <= 0) continue;
      for (int i = 0; i < 2; ++i) {
        if (ends[i].revents != 0) open = open && Pass(ends[i].fd, ends[1 - i].fd);
      }
    }
    close(near);
    close(far);
  }

  static bool Pass(int from, int to) {
    char bytes[65536];
    const ssize_t n = recv(from, bytes, sizeof(bytes), 0);
    return n > 0 && send(to, bytes, static_cast<size_t>(n), MSG_NOSIGNAL) == n;
  }

  const uint16_t port_;
  const std::chrono::milliseconds delay_;
  const int listener_;
  bool ok_ = false;
  std::string address_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> accepted_{0};
  std::vector<std::thread> carrying_;  // used by the accepting thread until it is joined
  std::thread accepting_;
};

}  // namespace plumbline::transport::testing

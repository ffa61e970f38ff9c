#include "tests/server/http_support.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace plumbline::test {

int Dial(const std::string& address) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0) return fd;
  close(fd);
  return -1;
}

std::string HttpAddress(Plumbd& server) {
  std::string http;
  Eventually([&] {
    const std::string log = server.process().errors();
    const size_t at = log.find("http on ");
    const size_t end = log.find('\n', at);
    if (at == std::string::npos || end == std::string::npos) return false;
    http = log.substr(at + 8, end - at - 8);
    return true;
  });
  return http;
}

std::string HttpAnswer(const std::string& address, const std::string& path,
                       const std::string& headers, const std::string& host) {
  const int fd = Dial(address);
  if (fd < 0) return "";
  const std::string request =
      "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n" + headers + "\r\n";
  std::string answer;
  if (write(fd, request.data(), request.size()) > 0) {
    char buffer[4096];
    for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;) {
      answer.append(buffer, static_cast<size_t>(n));
    }
  }
  close(fd);
  return answer;
}

}  // namespace plumbline::test

#include "server/process/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "absl/strings/numbers.h"

namespace plumbline::server {
namespace {

std::string Taken(const char* variable) {
  const char* value = std::getenv(variable);
  std::string out = value == nullptr ? "" : value;
  unsetenv(variable);
  return out;
}

}  // namespace

ServiceManager ServiceManager::FromEnvironment() {
  ServiceManager manager;
  manager.address_ = Taken("NOTIFY_SOCKET");
  const std::string pid = Taken("WATCHDOG_PID"), usec = Taken("WATCHDOG_USEC");
  int64_t value = 0;
  const bool ours = pid.empty() || (absl::SimpleAtoi(pid, &value) && value == getpid());
  if (ours && absl::SimpleAtoi(usec, &value) && value > 0) {
    manager.watchdog_ = std::chrono::microseconds(value / 2);
  }
  return manager;
}

void ServiceManager::Status(std::string_view text) const {
  std::string line = "STATUS=" + std::string(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  Report(line);
}

// The address may be a path, or an abstract name ("@...").
void ServiceManager::Report(std::string_view text) const {
  sockaddr_un to{};
  if (address_.empty() || address_.size() >= sizeof to.sun_path) return;
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, address_.data(), address_.size());
  if (address_[0] == '@') to.sun_path[0] = '\0';
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  (void)!sendto(fd, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                reinterpret_cast<const sockaddr*>(&to), size);
  close(fd);
}

}  // namespace plumbline::server

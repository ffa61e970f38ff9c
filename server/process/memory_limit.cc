#include "server/process/memory_limit.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace plumbline::server {
namespace {

// Returns the number in a file; UINT64_MAX for "max" and anything else.
uint64_t NumberIn(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  return file >> number ? number : UINT64_MAX;
}

// Returns the lowest limit of a group and its parents.
uint64_t LimitOf(const std::string& mount, std::string group, const std::string& name) {
  uint64_t limit = UINT64_MAX;
  for (;;) {
    limit = std::min(limit, NumberIn(mount + (group == "/" ? "" : group) + "/" + name));
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos || group == "/" || group.empty()) return limit;
    group.resize(slash);
  }
}

uint64_t HostMemory(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  std::string name;
  uint64_t kib = 0;
  return file >> name >> kib && name == "MemTotal:" ? kib << 10 : uint64_t{8} << 30;
}

}  // namespace

uint64_t MemoryLimit(const std::string& root) {
  uint64_t limit = HostMemory(root);
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/system.slice/plumbd.service"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string kinds = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (kinds.empty())
      limit = std::min(limit, LimitOf(root + "/sys/fs/cgroup", group, "memory.max"));
    if (kinds == "memory") {
      limit =
          std::min(limit, LimitOf(root + "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes"));
    }
  }
  return limit;
}

}  // namespace plumbline::server

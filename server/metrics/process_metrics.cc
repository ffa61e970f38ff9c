// Metrics of the process, with the names that every exporter uses.
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "server/metrics/server_metrics.h"

namespace plumbline::server {
namespace {

double Seconds(const timeval& t) {
  return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
}

double ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  double all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double OpenFiles() {
  std::error_code error;
  double count = 0;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end;
       it.increment(error)) {
    ++count;
  }
  return count;
}

}  // namespace

void AddProcess(MetricFamilies* out) {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  out->Counter("process_cpu_seconds_total", "User and system time.",
               Seconds(used.ru_utime) + Seconds(used.ru_stime));
  out->Gauge("process_resident_memory_bytes", "Resident memory.", ResidentBytes());
  out->Gauge("process_open_fds", "Open file descriptors.", OpenFiles());
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    out->Gauge("process_max_fds", "Limit of open file descriptors.",
               static_cast<double>(files.rlim_cur));
  }
}

}  // namespace plumbline::server

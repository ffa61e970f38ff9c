#include "tests/server/faults/disk_faults.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace plumbline::test {
namespace {

std::atomic<DiskFault> fault_of_process{DiskFault::kNone};
std::atomic<int> calls_left{0};

bool DiesNow() { return calls_left.load() > 0 && calls_left.fetch_sub(1) == 1; }

struct Faults {
  DiskFault disk = DiskFault::kNone;
  long clock_seconds = 0;
  bool fork = false;
};

// Read again at each call, because the test changes the file while the server runs.
Faults Now() {
  Faults faults{fault_of_process.load(), 0, false};
  const char* path = getenv("PLUMB_FAULT_FILE");
  if (path == nullptr) return faults;
  const auto fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC));
  if (fd < 0) return faults;
  char text[64] = {};
  const long n = syscall(SYS_read, fd, text, sizeof(text) - 1);
  syscall(SYS_close, fd);
  if (n <= 0) return faults;
  if (std::strncmp(text, "full", 4) == 0) faults.disk = DiskFault::kFull;
  if (std::strncmp(text, "sync", 4) == 0) faults.disk = DiskFault::kSync;
  if (std::strncmp(text, "write", 5) == 0) faults.disk = DiskFault::kWrite;
  faults.fork = std::strncmp(text, "fork", 4) == 0;
  if (const char* space = std::strchr(text, ' ')) faults.clock_seconds = std::atol(space);
  return faults;
}

ssize_t Write(int fd, const void* data, size_t size, off_t offset) {
  if (DiesNow()) {
    (void)syscall(SYS_pwrite64, fd, data, size / 2, offset);
    _exit(kDiedAtCall);
  }
  switch (Now().disk) {
    case DiskFault::kFull:
      if (size > 1) (void)syscall(SYS_pwrite64, fd, data, size / 2, offset);
      errno = ENOSPC;
      return -1;
    case DiskFault::kWrite:
      errno = EIO;
      return -1;
    default:
      return syscall(SYS_pwrite64, fd, data, size, offset);
  }
}

int Sync(long call, int fd) {
  if (DiesNow()) _exit(kDiedAtCall);
  if (Now().disk == DiskFault::kSync) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(syscall(call, fd));
}

}  // namespace

void SetDiskFault(DiskFault fault) { fault_of_process = fault; }
void DieAtCall(int nth) { calls_left = nth; }

}  // namespace plumbline::test

#pragma GCC visibility push(default)
extern "C" {

ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  return plumbline::test::Write(fd, data, size, offset);
}
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t offset) {
  return plumbline::test::Write(fd, data, size, offset);
}
int fdatasync(int fd) { return plumbline::test::Sync(SYS_fdatasync, fd); }
int fsync(int fd) { return plumbline::test::Sync(SYS_fsync, fd); }
int rename(const char* from, const char* to) noexcept {
  if (plumbline::test::DiesNow()) _exit(plumbline::test::kDiedAtCall);
  return static_cast<int>(syscall(SYS_rename, from, to));
}

pid_t fork() noexcept {
  if (plumbline::test::Now().fork) {
    errno = EAGAIN;
    return -1;
  }
  return reinterpret_cast<pid_t (*)()>(dlsym(RTLD_NEXT, "fork"))();
}

int clock_gettime(clockid_t clock, struct timespec* time) noexcept {
  const int result = static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  if (result == 0 && clock == CLOCK_REALTIME && getenv("PLUMB_FAULT_FILE") != nullptr) {
    time->tv_sec += plumbline::test::Now().clock_seconds;
  }
  return result;
}

}  // extern "C"
#pragma GCC visibility pop

// Lowers the CPU and I/O priority of the calling thread.
#pragma once

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace plumbline::server {

// Gives the calling thread the processor and the disk only when no other thread wants them. Does
// not use SCHED_IDLE, because a starved thread may hold a lock of the allocator.
inline void LowerThreadPriority() {
  constexpr int kProcess = 1, kIdleClass = 3 << 13;  // of linux/ioprio.h
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 19);
  (void)syscall(SYS_ioprio_set, kProcess, 0, kIdleClass);
}

}  // namespace plumbline::server
